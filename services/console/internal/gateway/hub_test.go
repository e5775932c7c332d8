package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
)

// fakeStream is a fake gateway. Each open stream sends the messages of one channel.
type fakeStream struct {
	mu      sync.Mutex
	streams map[string]chan string // open streams by token
	opened  []string               // the tokens of all streams, in the order of opening
	after   []string               // last_event_id of all streams
	headers []http.Header          // of all streams
	refused map[string]int         // the HTTP status with which requests are refused, by token
	roles   map[string]string
	unknown bool // if true, every last_event_id is refused
	*httptest.Server
}

func newFakeStream(t *testing.T) (*fakeStream, *Hub) {
	t.Helper()
	f := &fakeStream{streams: map[string]chan string{}, refused: map[string]int{}, roles: map[string]string{}}
	f.Server = httptest.NewServer(f)
	base, err := url.Parse(f.URL)
	if err != nil {
		t.Fatal(err)
	}
	hub := NewHub(NewClient(base))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := hub.Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		f.CloseClientConnections()
		f.Close()
	})
	return f, hub
}

func (f *fakeStream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := r.Header.Get("Authorization")[len("Bearer "):]
	f.mu.Lock()
	status, role := f.refused[token], f.roles[token]
	if status == 0 && f.unknown && r.URL.Query().Get("last_event_id") != "" {
		status = http.StatusUnprocessableEntity
	}
	f.mu.Unlock()
	if status != 0 {
		code := "refused"
		if status == http.StatusUnprocessableEntity {
			code = "validation_error"
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error":{"code":%q}}`, code)
		return
	}
	if r.URL.Path != "/v1/events" || r.Method == http.MethodHead {
		fmt.Fprintf(w, `{"operator":false,"memberships":[{"role":%q}],"session":{"last_used_at":%q}}`, role, time.Now())
		return
	}
	f.serveStream(w, r, token)
}

func (f *fakeStream) serveStream(w http.ResponseWriter, r *http.Request, token string) {
	messages := make(chan string)
	f.mu.Lock()
	f.streams[token] = messages
	f.opened = append(f.opened, token)
	f.headers = append(f.headers, r.Header)
	f.after = append(f.after, r.URL.Query().Get("last_event_id"))
	f.mu.Unlock()
	_ = http.NewResponseController(w).Flush() // the header
	for {
		select {
		case <-r.Context().Done():
			return
		case message, open := <-messages:
			if !open {
				return
			}
			fmt.Fprint(w, message)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// set calls the function `change` while it holds the lock of the fake gateway.
func (f *fakeStream) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// stream waits until the stream of a token is open, and returns the channel of its events.
func (f *fakeStream) stream(t *testing.T, token string) (messages chan string) {
	t.Helper()
	until(t, "a stream of "+token, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		messages = f.streams[token]
		return messages != nil
	})
	return messages
}

func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s within 20 s", what)
		}
	}
}

func event(id uuid.UUID) string {
	return fmt.Sprintf(
		"id: %s\nevent: call.ringing\ndata: {\"data\":{\"call_id\":\"c\",\"transcript\":\"secret\"}}\n\n",
		id,
	)
}

func subscribe(t *testing.T, hub *Hub, token, after string) *Subscription {
	t.Helper()
	session := hub.client.Session(token)
	session.Workspace = uuid.MustParse("01a218cb-00ad-7433-a772-fa8615bd3f28")
	sub, err := hub.Subscribe(t.Context(), session, after)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sub.Close)
	return sub
}

// next returns the next event that is not a reset.
func next(t *testing.T, sub *Subscription) (Event, bool) {
	t.Helper()
	for {
		select {
		case e, open := <-sub.C:
			if e.Reset && open {
				continue
			}
			return e, open
		case <-time.After(20 * time.Second):
			t.Fatal("no event within 20 s")
		}
	}
}

func TestHub_BrowsersOfAWorkspaceShareOneStream(t *testing.T) {
	t.Parallel()
	f, hub := newFakeStream(t)
	first := subscribe(t, hub, "one", "")
	messages := f.stream(t, "one")
	second := subscribe(t, hub, "two", "")
	id := uuid.New()
	messages <- event(id)
	for name, sub := range map[string]*Subscription{"first": first, "second": second} {
		e, open := next(t, sub)
		if want := (Event{ID: id.String(), Type: "call.ringing", CallID: "c"}); !open || e != want {
			t.Errorf("event of the %s browser = %+v, want %+v", name, e, want)
		}
	}
	f.set(func() {
		if !slices.Equal(f.opened, []string{"one"}) {
			t.Errorf("streams = %v, want only the one of the first browser", f.opened)
		}
	})
}

func TestHub_ResumesAfterTheLastEventOfABrowser(t *testing.T) {
	t.Parallel()
	f, hub := newFakeStream(t)
	first := subscribe(t, hub, "one", "")
	messages := f.stream(t, "one")
	a, b := uuid.New(), uuid.New()
	messages <- event(a)
	messages <- event(b)
	next(t, first)
	next(t, first)
	if e := <-subscribe(t, hub, "two", a.String()).C; e.ID != b.String() || e.Reset {
		t.Errorf("event after the first one = %+v, want the second one", e)
	}
	if e := <-subscribe(t, hub, "three", uuid.NewString()).C; !e.Reset {
		t.Errorf("event after an unknown one = %+v, want a reset", e)
	}
}

func TestHub_ContinuesWithAnotherSessionWhenOneEnds(t *testing.T) {
	t.Parallel()
	f, hub := newFakeStream(t)
	stays := subscribe(t, hub, "stays", "")
	f.stream(t, "stays")
	leaves := subscribe(t, hub, "leaves", "")
	id := uuid.New()
	f.stream(t, "stays") <- event(id)
	next(t, stays)
	f.set(func() {
		f.refused["leaves"] = http.StatusUnauthorized
		close(f.streams["stays"]) // the gateway closes the stream, for example because it restarts
		delete(f.streams, "stays")
	})
	if _, open := next(t, leaves); open {
		if _, open := next(t, leaves); open {
			t.Error("stream of the ended session is open")
		}
	}
	later := uuid.New()
	f.stream(t, "stays") <- event(later)
	if e, _ := next(t, stays); e.ID != later.String() {
		t.Errorf("event after the change = %+v, want %s", e, later)
	}
	f.set(func() {
		if got := f.after[len(f.after)-1]; got != id.String() {
			t.Errorf("last_event_id = %q, want %s", got, id)
		}
	})
}

func TestHub_ReadsNoTranscripts(t *testing.T) {
	t.Parallel()
	f, hub := newFakeStream(t)
	session := hub.client.Session("one")
	session.Workspace, session.Reason = uuid.New(), "complaint 7"
	sub, err := hub.Subscribe(t.Context(), session, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sub.Close)
	f.stream(t, "one")
	f.set(func() {
		if got := f.headers[0].Get("Ringfence-Redacted"); got != "true" {
			t.Errorf("Ringfence-Redacted = %q, want true", got)
		}
		if got := f.headers[0].Get("Ringfence-Reason"); got != "" {
			t.Errorf("Ringfence-Reason = %q, want none, because nothing is read", got)
		}
	})
}

func TestHub_SendsTheOperatorsReasonForReadingTurns(t *testing.T) {
	t.Parallel()
	f, hub := newFakeStream(t)
	session := hub.client.Session("one")
	session.Workspace, session.Reason = uuid.New(), "complaint 7"
	sub, err := hub.SubscribeTurns(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sub.Close)
	f.stream(t, "one")
	f.set(func() {
		for _, header := range f.headers {
			if got := header.Get("Ringfence-Reason"); got != "complaint 7" {
				t.Errorf("Ringfence-Reason = %q, want the reason", got)
			}
			if got := header.Get("Ringfence-Redacted"); got != "" {
				t.Errorf("Ringfence-Redacted = %q, want none", got)
			}
		}
	})
}

func TestHub_RefusedSessionDoesNotEndOtherSubscriptions(t *testing.T) {
	t.Parallel()
	f, hub := newFakeStream(t)
	stays := subscribe(t, hub, "stays", "")
	f.stream(t, "stays")
	subscribe(t, hub, "limited", "")
	f.set(func() {
		f.refused["limited"] = http.StatusTooManyRequests
		close(f.streams["stays"]) // the gateway restarts
		delete(f.streams, "stays")
	})
	id := uuid.New()
	f.stream(t, "stays") <- event(id)
	if e, _ := next(t, stays); e.ID != id.String() {
		t.Errorf("event = %+v, want %s", e, id)
	}
}

func TestHub_StreamEndsIfItsSessionCannotBeChecked(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		f, hub := newFakeStream(t)
		subscribe(t, hub, "reads", "")
		f.stream(t, "reads")
		sub := subscribe(t, hub, "one", "")
		f.set(func() { f.refused["one"] = status })
		if _, open := next(t, sub); open {
			t.Errorf("status %d: stream is open", status)
		}
	}
}

func TestHub_LimitsTheStreamsOfASession(t *testing.T) {
	t.Parallel()
	_, hub := newFakeStream(t)
	var last *Subscription
	for range maxStreams {
		last = subscribe(t, hub, "one", "")
	}
	more := func() error {
		sub, err := hub.Subscribe(t.Context(), last.session, "")
		if err == nil {
			t.Cleanup(sub.Close)
		}
		return err
	}
	if refused := AsError(more()); refused == nil || refused.Status != http.StatusTooManyRequests {
		t.Errorf("one stream more: error = %v, want 429", refused)
	}
	subscribe(t, hub, "two", "")
	last.Close()
	until(t, "place for a stream", func() bool { return more() == nil })
}

func TestHub_AChangedRoleEndsTheStream(t *testing.T) {
	t.Parallel()
	f, hub := newFakeStream(t)
	f.set(func() { f.roles["one"] = Developer })
	sub := subscribe(t, hub, "one", "")
	f.set(func() { f.roles["one"] = Viewer })
	if _, open := next(t, sub); open {
		t.Error("stream is open after the change")
	}
}

func TestHub_ASessionWithoutAccessGetsNoStream(t *testing.T) {
	t.Parallel()
	f, hub := newFakeStream(t)
	f.set(func() { f.refused["viewer"] = http.StatusForbidden })
	subscribe(t, hub, "owner", "") // the stream of another person is open
	_, err := hub.Subscribe(t.Context(), hub.client.Session("viewer"), "")
	if refused := AsError(err); refused == nil || refused.Status != http.StatusForbidden {
		t.Errorf("Subscribe = %v, want 403", err)
	}
}

func TestHub_ExpiredPositionSendsAResetEventToTheBrowsers(t *testing.T) {
	t.Parallel()
	f, hub := newFakeStream(t)
	sub := subscribe(t, hub, "one", "")
	f.stream(t, "one") <- event(uuid.New())
	next(t, sub)
	f.set(func() {
		f.unknown = true
		close(f.streams["one"])
		delete(f.streams, "one")
	})
	if e := <-sub.C; !e.Reset {
		t.Errorf("event = %+v, want a reset", e)
	}
	id := uuid.New()
	f.stream(t, "one") <- event(id)
	if e, _ := next(t, sub); e.ID != id.String() {
		t.Errorf("event after the reset = %+v, want %s", e, id)
	}
}

func TestHub_SlowBrowserGetsAResetEvent(t *testing.T) {
	t.Parallel()
	f, hub := newFakeStream(t)
	sub := subscribe(t, hub, "one", "")
	fast := subscribe(t, hub, "two", "")
	messages := f.stream(t, "one")
	for range maxWaitingEvents + 2 {
		messages <- event(uuid.New())
		next(t, fast)
	}
	reset := false
	for len(sub.C) > 0 {
		reset = (<-sub.C).Reset || reset
	}
	if !reset {
		t.Error("no reset among the events of the slow browser")
	}
}

// Each subscriber first requests the stream with its own session, because the gateway must record
// each person who reads turns.
func TestHub_OnlySubscribersOfTranscriptTurnsReceiveThem(t *testing.T) {
	t.Parallel()
	f, hub := newFakeStream(t)
	events := subscribe(t, hub, "events", "")
	messages := f.stream(t, "events")
	workspace := events.session.Workspace
	subscribeTurns := func(token string) (*Subscription, error) {
		session := hub.client.Session(token)
		session.Workspace = workspace
		return hub.SubscribeTurns(t.Context(), session)
	}
	first, err := subscribeTurns("first")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	var turns chan string
	until(t, "the shared stream of turns", func() (shared bool) {
		f.set(func() {
			shared = len(slices.DeleteFunc(slices.Clone(f.opened), func(token string) bool { return token != "first" })) == 2
			turns = f.streams["first"]
		})
		return shared
	})
	second, err := subscribeTurns("second")
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	f.set(func() { f.refused["viewer"] = http.StatusUnprocessableEntity })
	if _, err := subscribeTurns("viewer"); AsError(err) == nil || AsError(err).Status != http.StatusUnprocessableEntity {
		t.Errorf("turns for a viewer: err = %v, want 422", err)
	}
	turns <- "event: call.turn\ndata: {\"data\":{\"call_id\":\"c\",\"role\":\"person\",\"text\":\"<b>Hi\"}}\n\n"
	for name, sub := range map[string]*Subscription{"first": first, "second": second} {
		e := <-sub.C
		if want := (Event{Type: "call.turn", CallID: "c", Role: "person", Text: "<b>Hi"}); e != want {
			t.Errorf("event of the %s browser = %+v, want %+v", name, e, want)
		}
	}
	id := uuid.New()
	messages <- event(id)
	if e, _ := next(t, events); e.ID != id.String() {
		t.Errorf("event of the other stream = %+v, want the event %s", e, id)
	}
	var reads int
	f.set(func() {
		for _, token := range f.opened {
			if token == "second" {
				reads++
			}
		}
	})
	if reads != 1 {
		t.Errorf("streams with the second session = %d, want one for the audit log", reads)
	}
}

func TestHub_SlowBrowserLosesTranscriptTurns(t *testing.T) {
	t.Parallel()
	f := &sharedStream{key: streamKey{turns: true}}
	slow := &Subscription{C: make(chan Event, 1)}
	f.subscribers = []*Subscription{slow}
	f.publish(Event{Type: turnType, Text: "one"})
	f.publish(Event{Type: turnType, Text: "two"})
	if e := <-slow.C; e.Text != "one" {
		t.Errorf("event = %+v, want the first turn", e)
	}
	if len(slow.C) > 0 || len(f.recent) > 0 {
		t.Errorf("waiting turns = %d, stored turns = %d, want none", len(slow.C), len(f.recent))
	}
}

func TestSession_SendsNoRequestToOtherHosts(t *testing.T) {
	t.Parallel()
	base, err := url.Parse("http://gateway:8083")
	if err != nil {
		t.Fatal(err)
	}
	s := NewClient(base).Session("rfs_secret")
	for _, path := range []string{"//evil.example/v1/calls", "http://evil.example/", "https://evil.example"} {
		if _, err := s.request(t.Context(), Request{Path: path}); err == nil {
			t.Errorf("request of %q: no error", path)
		}
	}
}
