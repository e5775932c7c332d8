package eventstream

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/seal"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

const schema = "webhook_dispatcher"

type fixture struct {
	t     *testing.T
	pool  *pgxpool.Pool
	store *store.Store
	start store.StreamCursor // the cursor before the first event
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	box, err := seal.New(seal.Config{Keys: []string{"t=" + base64.StdEncoding.EncodeToString(make([]byte, 32))}})
	if err != nil {
		t.Fatal(err)
	}
	pool := pgtest.New(t, schema, outbox.Migrations, inbox.Migrations, pg.Migrations{Name: schema, FS: store.Migrations})
	st := store.New(pool, box)
	timeline, err := st.Timeline(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	start := store.StreamCursor{EventID: uuid.New(), Timeline: timeline}
	return &fixture{t: t, pool: pool, store: st, start: start}
}

func newEvent(ws uuid.UUID, body string) deliveries.Event {
	call := uuid.New()
	return deliveries.Event{
		ID:          uuid.New(),
		WorkspaceID: ws,
		ObjectID:    &call,
		Type:        "call.ringing",
		Sequence:    1,
		Body:        []byte(body),
		CreatedAt:   time.Now(),
	}
}

func (f *fixture) ingest(events ...deliveries.Event) {
	f.t.Helper()
	if err := pg.InTx(f.t.Context(), f.pool, func(tx pgx.Tx) error {
		_, err := f.store.Ingest(f.t.Context(), tx, events...)
		return err
	}); err != nil {
		f.t.Fatal(err)
	}
}

// replica serves the event streams of one hub. The query of its URL contains the workspace and the
// position.
type replica struct {
	hub     *Hub
	url     string
	closing chan struct{}
	sent    chan struct{} // receives a value when a stream has ended
}

func (f *fixture) replica(change ...func(*Hub)) *replica {
	f.t.Helper()
	r := &replica{
		hub:     New(f.store, prometheus.NewRegistry()),
		closing: make(chan struct{}),
		sent:    make(chan struct{}, 1000),
	}
	for _, c := range change {
		c(r.hub)
	}
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := r.hub.Run(ctx); err != nil {
			f.t.Errorf("Run: %v", err)
		}
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		cursor := f.start
		cursor.IngestedAt = time.Now()
		stream, err := r.hub.Open(req.Context(), uuid.MustParse(req.URL.Query().Get("workspace")), cursor,
			Filter{Types: req.URL.Query()["types"], Turns: req.URL.Query().Has("turns")})
		if err != nil {
			status := http.StatusInternalServerError
			if refused, ok := errors.AsType[*apierr.Error](err); ok {
				status = refused.Status
			}
			http.Error(w, err.Error(), status)
			return
		}
		defer func() { r.sent <- struct{}{} }()
		defer stream.Close(req.Context())
		stream.Send(req.Context(), w, r.closing)
	}))
	r.url = server.URL
	f.t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		stop()
		done.Wait()
	})
	return r
}

// listen connects a client. It returns a channel with the ids that the client receives. The channel
// is closed at the end of the response.
func (f *fixture) listen(r *replica, ws uuid.UUID) <-chan string {
	f.t.Helper()
	request, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, r.url+"?workspace="+ws.String(), http.NoBody)
	if err != nil {
		f.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		f.t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		f.t.Fatalf("status = %d, want 200", response.StatusCode)
	}
	ids := make(chan string, 1000)
	go func() {
		defer close(ids)
		defer func() { _ = response.Body.Close() }()
		lines := bufio.NewScanner(response.Body)
		id := ""
		for lines.Scan() {
			if next, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				id = next
			} else if strings.HasPrefix(lines.Text(), "data: ") {
				ids <- id
			}
		}
	}()
	return ids
}

func (f *fixture) wantIDs(ids <-chan string, events []deliveries.Event) {
	f.t.Helper()
	for i, ev := range events {
		select {
		case got := <-ids:
			if got != ev.ID.String() {
				f.t.Fatalf("event %d = %q, want %s", i, got, ev.ID)
			}
		case <-time.After(testkit.Timeout):
			f.t.Fatalf("event %d did not arrive", i)
		}
	}
}

// No consumer wakes the hub, as if another replica had stored the events.
func TestHub_FindsEventsOfOtherReplicas(t *testing.T) {
	t.Parallel()
	f, ws := newFixture(t), uuid.New()
	ids := f.listen(f.replica(), ws)
	other := f.listen(f.replica(), uuid.New())
	for range 3 {
		batch := []deliveries.Event{newEvent(ws, "{}"), newEvent(ws, "{}")}
		f.ingest(batch...)
		f.wantIDs(ids, batch)
	}
	select {
	case id := <-other:
		t.Errorf("the stream of another workspace received %s", id)
	default:
	}
}

func TestHub_FiveHundredStreamsReceiveEveryEvent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.replica()
	const workspaces, streams = 50, MaxStreams
	owners := make([]uuid.UUID, workspaces)
	clients := map[uuid.UUID][]<-chan string{}
	for i := range owners {
		owners[i] = uuid.New()
		for range streams {
			clients[owners[i]] = append(clients[owners[i]], f.listen(r, owners[i]))
		}
	}
	sent := map[uuid.UUID][]deliveries.Event{}
	for range 10 {
		var batch []deliveries.Event
		for _, ws := range owners {
			ev := newEvent(ws, "{}")
			batch, sent[ws] = append(batch, ev), append(sent[ws], ev)
		}
		f.ingest(batch...)
		r.hub.Wake(owners)
	}
	for _, ws := range owners {
		for _, ids := range clients[ws] {
			f.wantIDs(ids, sent[ws])
		}
	}
}

func TestStream_StoredEventsAreSentBeforeNewEvents(t *testing.T) {
	t.Parallel()
	f, ws := newFixture(t), uuid.New()
	var stored []deliveries.Event
	for range 2*pageSize + 1 {
		stored = append(stored, newEvent(ws, "{}"))
	}
	f.ingest(stored...)
	ids := f.listen(f.replica(), ws) // the stream starts before the first event
	f.wantIDs(ids, stored)
	fresh := newEvent(ws, "{}")
	f.ingest(fresh)
	f.wantIDs(ids, []deliveries.Event{fresh})
}

func TestStream_MessageHasTheDocumentedFormat(t *testing.T) {
	t.Parallel()
	f, ws := newFixture(t), uuid.New()
	ev := newEvent(ws, "{\"a\":\n1}")
	f.ingest(ev)
	response, err := http.Get(f.replica().url + "?workspace=" + ws.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	want := ": open\nid: " + f.start.EventID.String() + "\n\nid: " + ev.ID.String() +
		"\nevent: call.ringing\ndata: {\"a\":\ndata: 1}\n\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(response.Body, got); err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("message = %q, want %q", got, want)
	}
}

func TestStream_SendsAnOpenCommentAndKeepAliveComments(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.replica(func(h *Hub) { h.commentInterval = time.Millisecond })
	response, err := http.Get(r.url + "?workspace=" + uuid.NewString())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	id := "\nid: " + f.start.EventID.String() + "\n\n"
	want := ": open" + id + ": keep-alive" + id + ": keep-alive" + id
	got := make([]byte, len(want))
	if _, err := io.ReadFull(response.Body, got); err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("comments = %q, want %q", got, want)
	}
}

// The filter matches no event. The comments must contain the id of the last event that was read, so
// that the client can resume after it.
func TestStream_CommentsHaveTheIDOfTheLastEventThatWasRead(t *testing.T) {
	t.Parallel()
	f, ws := newFixture(t), uuid.New()
	ev := newEvent(ws, "{}")
	f.ingest(ev)
	r := f.replica(func(h *Hub) { h.commentInterval = time.Millisecond })
	response, err := http.Get(r.url + "?types=call.busy&workspace=" + ws.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data") {
			t.Fatalf("line = %q, want only comments", lines.Text())
		}
		if lines.Text() == "id: "+ev.ID.String() {
			return
		}
	}
	t.Error("the stream ended before a comment had the id of the event")
}

// The client does not read, so the bodies of the events fill the buffers of the connection.
func TestStream_SlowReaderIsDisconnected(t *testing.T) {
	t.Parallel()
	f, ws := newFixture(t), uuid.New()
	r := f.replica(func(h *Hub) { h.writeTimeout = 100 * time.Millisecond })
	for range 64 {
		f.ingest(newEvent(ws, `"`+strings.Repeat("x", 200<<10)+`"`))
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "GET /?workspace=%s HTTP/1.1\r\nHost: x\r\n\r\n", ws); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.sent:
	case <-time.After(testkit.Timeout):
		t.Fatal("the stream of a client that does not read did not end")
	}
}

// The client must receive the last message completely when the process ends.
func TestStream_EndsCleanlyWhenTheServerCloses(t *testing.T) {
	t.Parallel()
	f, ws := newFixture(t), uuid.New()
	r := f.replica()
	response, err := http.Get(r.url + "?workspace=" + ws.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	ev := newEvent(ws, "{}")
	f.ingest(ev)
	lines := bufio.NewScanner(response.Body)
	var got []string
	for lines.Scan() {
		if got = append(got, lines.Text()); lines.Text() == "data: {}" {
			close(r.closing)
		}
	}
	if err := lines.Err(); err != nil {
		t.Errorf("end of the response: %v, want none", err)
	}
	want := []string{
		": open", "id: " + f.start.EventID.String(), "",
		"id: " + ev.ID.String(), "event: call.ringing", "data: {}", "",
	}
	if !slices.Equal(got, want) {
		t.Errorf("lines = %q, want %q", got, want)
	}
}

// After a failover to an asynchronous standby, the newest events can be missing in the database.
func TestHub_EndsStreamsIfTheDatabaseLostEvents(t *testing.T) {
	t.Parallel()
	f, ws := newFixture(t), uuid.New()
	ids := f.listen(f.replica(), ws)
	batch := []deliveries.Event{newEvent(ws, "{}"), newEvent(ws, "{}")}
	f.ingest(batch...)
	f.wantIDs(ids, batch)
	time.Sleep(2 * maxPoll) // the hub has read the position of the event
	if _, err := f.pool.Exec(t.Context(), `UPDATE stream_heads SET position = 1`); err != nil {
		t.Fatal(err)
	}
	select {
	case id, more := <-ids:
		if more {
			t.Errorf("event %s arrived, want the end of the stream", id)
		}
	case <-time.After(testkit.Timeout):
		t.Fatal("the stream did not end")
	}
}

// The database lost events in a failover. Before the hub polls, new events get higher positions
// than the lost events had.
func TestHub_EndsStreamsIfTheTimelineOfTheDatabaseChanges(t *testing.T) {
	t.Parallel()
	f, ws := newFixture(t), uuid.New()
	ids := f.listen(f.replica(), ws)
	other := f.listen(f.replica(), uuid.New()) // this workspace has no events
	const another = `
		CREATE OR REPLACE FUNCTION database_timeline() RETURNS text LANGUAGE sql STABLE AS $$ SELECT 'another' $$`
	if _, err := pgtest.Owner(t, f.pool, schema).Exec(t.Context(), another); err != nil {
		t.Fatal(err)
	}
	f.ingest(newEvent(ws, "{}"))
	for name, stream := range map[string]<-chan string{"with events": ids, "without events": other} {
		select {
		case id, more := <-stream:
			if more {
				t.Errorf("stream %s received event %s, want its end", name, id)
			}
		case <-time.After(testkit.Timeout):
			t.Errorf("the stream %s did not end", name)
		}
	}
	testkit.Until(t, "the hub records the timeline", func() bool {
		var found bool
		if err := f.pool.QueryRow(t.Context(), `
			SELECT EXISTS (SELECT FROM database_timelines WHERE timeline = 'another')`).Scan(&found); err != nil {
			t.Fatal(err)
		}
		return found
	})
}

func TestHub_LimitsTheStreamsOfAReplica(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.replica(func(h *Hub) { h.maxStreams = 2 })
	open := func() int {
		t.Helper()
		response, err := http.Get(r.url + "?workspace=" + uuid.NewString())
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != http.StatusOK {
			_ = response.Body.Close()
		} else {
			t.Cleanup(func() { _ = response.Body.Close() })
		}
		return response.StatusCode
	}
	for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusServiceUnavailable} {
		if got := open(); got != want {
			t.Errorf("status of stream %d = %d, want %d", i+1, got, want)
		}
	}
	close(r.closing)
	<-r.sent
	<-r.sent
	if got := open(); got != http.StatusOK {
		t.Errorf("status after the others were closed = %d, want 200", got)
	}
}

// One stream is closed while hub.renew waits for a lock. After hub.renew, the closed stream must
// have no row.
func TestHub_RenewalDoesNotKeepTheRowOfAClosedStream(t *testing.T) {
	t.Parallel()
	f, ws := newFixture(t), uuid.New()
	hub := New(f.store, prometheus.NewRegistry())
	stream, err := hub.Open(t.Context(), ws, f.start, Filter{})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := hub.Open(t.Context(), ws, f.start, Filter{})
	if err != nil {
		t.Fatal(err)
	}
	owner := pgtest.Owner(t, f.pool, schema)
	if _, err := owner.Exec(t.Context(), `
		CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END $$;
		CREATE TRIGGER wait BEFORE INSERT ON open_streams FOR EACH ROW EXECUTE FUNCTION wait()`); err != nil {
		t.Fatal(err)
	}
	lock, err := owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := lock.Exec(t.Context(), `SELECT pg_advisory_xact_lock(1)`); err != nil {
		t.Fatal(err)
	}
	renewed := make(chan error, 1)
	go func() { renewed <- hub.renew(context.WithoutCancel(t.Context())) }()
	count := func(sql string) (n int) {
		t.Helper()
		if err := owner.QueryRow(t.Context(), sql).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	testkit.Until(t, "the renewal waits", func() bool {
		return count(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) > 0
	})
	stream.Close(t.Context())
	if err := lock.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-renewed; err != nil {
		t.Fatalf("renew: %v", err)
	}
	if got := count(`SELECT count(*) FROM open_streams WHERE id = '` + stream.id.String() + `'`); got != 0 {
		t.Error("the closed stream is still counted")
	}
	if got := count(`SELECT count(*) FROM open_streams WHERE id = '` + kept.id.String() + `'`); got != 1 {
		t.Error("the open stream is not counted")
	}
}

func TestHub_LimitCountsTheStreamsOfAllReplicas(t *testing.T) {
	t.Parallel()
	f, ws := newFixture(t), uuid.New()
	first, second := f.replica(), f.replica()
	for i := range MaxStreams {
		f.listen([]*replica{first, second}[i%2], ws)
	}
	for _, r := range []*replica{first, second} {
		response, err := http.Get(r.url + "?workspace=" + ws.String())
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusTooManyRequests {
			t.Errorf("status of a further stream = %d, want 429", response.StatusCode)
		}
	}
	close(first.closing) // the five streams of the first replica end
	for range MaxStreams / 2 {
		<-first.sent
	}
	f.listen(second, ws)
}
