package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
)

const (
	// maxRecentEvents is the number of recent events of a workspace from which a browser can resume.
	maxRecentEvents = 1000
	// maxWaitingEvents is the maximum number of events that wait for one browser. A browser that reads
	// more slowly receives a reset, and reads the whole page again.
	maxWaitingEvents = 256
	// A revoked session must lose its stream within 5 s. So a stream ends after maxFailures session
	// checks without an answer.
	recheckInterval = 2 * time.Second
	maxFailures     = 2
	// maxStreams is the number of streams that one session can open in a workspace.
	maxStreams   = 8
	minReconnect = 100 * time.Millisecond
	maxReconnect = 5 * time.Second
	// idleTimeout is how long the stream of a workspace stays open after its last browser left, so
	// that a change of the page does not open it again.
	idleTimeout = 5 * time.Second
)

// turnType is the event type of a turn of a call in progress.
const turnType = "call.turn"

// Event is the notification that a browser receives for an event of the workspace. It contains no
// call data: the browser reads the page again, with the permissions of its session. Only turns
// contain data, because turns are not stored and cannot be read later.
type Event struct {
	ID            string `json:"id"`
	Type          string `json:"type"`
	CallID        string `json:"call_id,omitempty"`
	CallRequestID string `json:"call_request_id,omitempty"`
	// Role and Text are the speaker and the words of a turn.
	Role string `json:"role,omitempty"`
	Text string `json:"text,omitempty"`
	// Reset is true if events can be missing. The browser then reads the whole page again.
	Reset bool `json:"-"`
}

// Hub shares one event stream per workspace, and one stream of turns of calls, between all browsers
// of this process. It has no credentials: it reads a stream with the session of one browser. When
// that session ends, it continues with the session of another browser.
type Hub struct {
	client *Client

	mu      sync.Mutex
	streams map[streamKey]*sharedStream
	closed  bool
	running sync.WaitGroup
}

// streamKey names a stream of the gateway. turns is true for the turns of calls in progress, and
// false for the stored events.
type streamKey struct {
	workspace uuid.UUID
	turns     bool
}

// NewHub returns a hub. Its streams end when Run ends.
func NewHub(client *Client) *Hub { return &Hub{client: client, streams: map[streamKey]*sharedStream{}} }

// Run waits until ctx ends and then closes all streams.
func (h *Hub) Run(ctx context.Context) error {
	<-ctx.Done()
	h.mu.Lock()
	h.closed = true
	for _, f := range h.streams {
		f.stop()
	}
	h.mu.Unlock()
	h.running.Wait()
	return nil
}

// sharedStream is one stream of a workspace. All its subscribers share one response of the gateway.
type sharedStream struct {
	key  streamKey
	stop context.CancelFunc

	mu          sync.Mutex
	subscribers []*Subscription
	recent      []Event
	last        string // the id of the last event
	idleSince   time.Time
	changed     chan struct{} // closed when a subscriber joins
}

// Subscription is the stream of one browser. C is closed when the stream ends.
type Subscription struct {
	C       chan Event
	session *Session
	key     streamKey
	stream  *sharedStream
	cancel  context.CancelFunc
}

// Subscribe opens the stream of the session's workspace for a browser. after is the id of the last
// event that the browser received, or empty. The gateway decides whether the session may read the
// stream. The stream ends with ctx, and when the session ends or its roles change.
func (h *Hub) Subscribe(ctx context.Context, s *Session, after string) (*Subscription, error) {
	s = s.In(s.Workspace)
	s.Reason = "" // a reason is needed only for transcripts, and this stream contains no transcripts
	// A HEAD request does not read the stream, so the gateway writes no audit entry.
	if err := mayStream(ctx, s, Request{Method: http.MethodHead, Path: "/v1/events", Header: redacted}); err != nil {
		return nil, err
	}
	return h.subscribe(ctx, s, after, streamKey{workspace: s.Workspace})
}

// SubscribeTurns does what Subscribe does, for the turns of calls in progress. Turns can be lost.
// The gateway permits the stream only to sessions that may read transcripts, and records each
// person who reads it.
func (h *Hub) SubscribeTurns(ctx context.Context, s *Session) (*Subscription, error) {
	if err := mayStream(ctx, s, turnsRequest()); err != nil {
		return nil, err
	}
	return h.subscribe(ctx, s, "", streamKey{workspace: s.Workspace, turns: true})
}

func turnsRequest() Request {
	return Request{Path: "/v1/events", Query: url.Values{"types": {turnType}}}
}

func (h *Hub) subscribe(ctx context.Context, s *Session, after string, key streamKey) (*Subscription, error) {
	me, err := Get[json.RawMessage](ctx, s.unchanged(), "/console/v1/me", nil)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	sub := &Subscription{C: make(chan Event, maxWaitingEvents), session: s, key: key, cancel: cancel}
	if err := h.join(sub, after); err != nil {
		cancel()
		return nil, err
	}
	go sub.recheck(ctx, grantOf(me))
	go func() {
		<-ctx.Done()
		sub.leave()
	}()
	return sub, nil
}

// unchanged returns a Session whose requests neither prolong the session nor replace its token.
func (s *Session) unchanged() *Session {
	copied := s.In(s.Workspace)
	copied.Background = true
	return copied
}

// redacted is the header that requests a stream without transcripts. The hub needs only the ids of
// the events. With this header an operator needs no reason, unlike for the stream of turns.
var redacted = http.Header{"Ringfence-Redacted": {"true"}}

// mayStream returns an error unless the gateway permits the session to read a stream. It reads only
// the header of the response.
func mayStream(ctx context.Context, s *Session, request Request) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	response, err := s.unchanged().Fetch(ctx, request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// grantOf returns the part of a response of GET /console/v1/me that decides what a person may do.
func grantOf(me json.RawMessage) string {
	var grant struct {
		Operator    bool            `json:"operator"`
		Memberships json.RawMessage `json:"memberships"`
	}
	_ = json.Unmarshal(me, &grant) // a member that cannot be decoded keeps its zero value
	text, err := json.Marshal(grant)
	if err != nil {
		return string(me)
	}
	return string(text)
}

// recheck ends the subscription when the session ends or the roles of the person change.
func (s *Subscription) recheck(ctx context.Context, grant string) {
	tick := time.NewTicker(recheckInterval)
	defer tick.Stop()
	for failures := 0; failures < maxFailures; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		me, err := Get[json.RawMessage](ctx, s.session.unchanged(), "/console/v1/me", nil)
		refused := AsError(err)
		switch {
		case err == nil && grantOf(me) == grant:
			failures = 0
		case refused != nil && (refused.Status == 0 || refused.Status >= http.StatusInternalServerError ||
			refused.Status == http.StatusTooManyRequests):
			failures++ // the gateway is unavailable at the moment
		default:
			failures = maxFailures
		}
	}
	s.cancel()
}

func (h *Hub) join(s *Subscription, after string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return &Error{Status: http.StatusServiceUnavailable, Code: "unavailable", Message: "The console is stopping."}
	}
	f := h.streams[s.key]
	if f == nil {
		ctx, stop := context.WithCancel(context.Background())
		f = &sharedStream{key: s.key, stop: stop, changed: make(chan struct{})}
		h.streams[f.key] = f
		h.running.Go(func() { h.run(ctx, f) })
	}
	s.stream = f
	f.mu.Lock()
	defer f.mu.Unlock()
	opened := 0
	for _, other := range f.subscribers {
		if other.session.Token == s.session.Token {
			opened++
		}
	}
	if opened >= maxStreams {
		return &Error{Status: http.StatusTooManyRequests, Code: "rate_limited", RetryAfter: "5",
			Message: "This session has too many open streams."}
	}
	f.resume(s, after)
	f.subscribers = append(f.subscribers, s)
	close(f.changed)
	f.changed = make(chan struct{})
	return nil
}

// resume sends the stored events that follow the event with the id `after`. If this event is not
// stored, resume sends a reset.
func (f *sharedStream) resume(s *Subscription, after string) {
	if after == "" || after == f.last {
		return
	}
	at := slices.IndexFunc(f.recent, func(e Event) bool { return e.ID == after })
	if at < 0 || len(f.recent)-at > maxWaitingEvents {
		s.C <- Event{ID: f.last, Reset: true}
		return
	}
	for _, e := range f.recent[at+1:] {
		s.C <- e
	}
}

// leave removes the subscription and closes its channel.
func (s *Subscription) leave() {
	f := s.stream
	f.mu.Lock()
	defer f.mu.Unlock()
	if at := slices.Index(f.subscribers, s); at >= 0 {
		f.subscribers = slices.Delete(f.subscribers, at, at+1)
		close(s.C)
	}
	if len(f.subscribers) == 0 {
		f.idleSince = time.Now()
	}
}

// Close ends the subscription.
func (s *Subscription) Close() { s.cancel() }

func (f *sharedStream) publish(e Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !e.Reset && !f.key.turns {
		f.recent, f.last = append(f.recent, e), e.ID
		if len(f.recent) > maxRecentEvents {
			f.recent = slices.Delete(f.recent, 0, len(f.recent)-maxRecentEvents)
		}
	}
	for _, s := range f.subscribers {
		select {
		case s.C <- e:
		default: // the browser reads too slowly
			if f.key.turns {
				continue // the browser loses the turn
			}
			for len(s.C) > 0 {
				<-s.C
			}
			s.C <- Event{ID: e.ID, Reset: true}
		}
	}
}

// waitForReader returns the subscriber that joined last. The session of this subscriber reads the
// stream. If no subscriber joins within idleTimeout, waitForReader returns false.
func (f *sharedStream) waitForReader(ctx context.Context) (*Subscription, bool) {
	for {
		f.mu.Lock()
		if n := len(f.subscribers); n > 0 {
			defer f.mu.Unlock()
			return f.subscribers[n-1], true
		}
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, false
		case <-changed:
		case <-time.After(idleTimeout):
			return nil, false
		}
	}
}

// postpone changes the order of the subscribers, so that waitForReader returns s last.
func (f *sharedStream) postpone(s *Subscription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at := slices.Index(f.subscribers, s); at > 0 {
		f.subscribers = slices.Insert(slices.Delete(f.subscribers, at, at+1), 0, s)
	}
}

// run reads the stream of a workspace until ctx ends or no subscriber is left.
func (h *Hub) run(ctx context.Context, f *sharedStream) {
	defer f.stop()
	for wait := minReconnect; ; {
		reader, ok := f.waitForReader(ctx)
		if !ok {
			if h.remove(ctx, f) {
				return
			}
			continue
		}
		received, err := h.read(ctx, f, reader)
		if refused := AsError(err); refused != nil && refused.Status >= 400 && refused.Status < 500 &&
			refused.Status != http.StatusTooManyRequests {
			if refused.Code == "validation_error" && f.forget() {
				continue // the last event has expired, so the next request contains no last_event_id
			}
			reader.cancel() // this session may not read the stream any more
			reader.leave()
			continue
		}
		if AsError(err) != nil {
			f.postpone(reader) // the gateway may accept the session of another subscriber
		}
		if received {
			wait = minReconnect
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, maxReconnect)
	}
}

// remove deletes the stream if it has no subscribers or if ctx has ended. It reports whether it
// deleted the stream.
func (h *Hub) remove(ctx context.Context, f *sharedStream) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.subscribers) > 0 && ctx.Err() == nil {
		return false
	}
	delete(h.streams, f.key)
	for _, s := range f.subscribers {
		close(s.C)
		s.cancel()
	}
	f.subscribers = nil
	return true
}

// forget deletes the position in the stream and sends a reset to all browsers. It returns false if
// the stream had no position.
func (f *sharedStream) forget() bool {
	f.mu.Lock()
	had := f.last != ""
	f.last, f.recent = "", nil
	f.mu.Unlock()
	if had {
		f.publish(Event{Reset: true})
	}
	return had
}

// read reads one response of the stream with the session of a subscriber.
func (h *Hub) read(ctx context.Context, f *sharedStream, reader *Subscription) (received bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request := turnsRequest()
	if !f.key.turns {
		request.Query, request.Header = url.Values{}, redacted
		f.mu.Lock()
		if f.last != "" {
			request.Query.Set("last_event_id", f.last)
		}
		f.mu.Unlock()
	}
	response, err := reader.session.unchanged().Fetch(ctx, request)
	if err != nil {
		return false, err
	}
	defer func() { _ = response.Body.Close() }()
	if !f.key.turns && request.Query.Get("last_event_id") == "" {
		f.publish(Event{Reset: true}) // events before this response can be missing
	}
	for events := openapi.NewEventReader(response.Body); ; {
		event, err := events.Next()
		if err != nil {
			return received, nil //nolint:nilerr // the response ended or its connection broke
		}
		received = true
		f.publish(eventOf(event))
	}
}

func eventOf(streamed openapi.StreamedEvent) Event {
	var envelope struct {
		Data struct {
			CallID        string `json:"call_id"`
			CallRequestID string `json:"call_request_id"`
			ID            string `json:"id"`
			Role          string `json:"role"`
			Text          string `json:"text"`
		} `json:"data"`
	}
	_ = json.Unmarshal(streamed.Data, &envelope) // an event of unknown form gets no ids
	if streamed.Type == turnType {
		return Event{Type: turnType, CallID: envelope.Data.CallID, Role: envelope.Data.Role, Text: envelope.Data.Text}
	}
	e := Event{ID: streamed.ID.String(), Type: string(streamed.Type), CallID: envelope.Data.CallID,
		CallRequestID: envelope.Data.CallRequestID}
	if e.CallRequestID == "" && e.CallID == "" {
		e.CallRequestID = envelope.Data.ID
	}
	return e
}
