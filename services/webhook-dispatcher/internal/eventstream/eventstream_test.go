package eventstream

import (
	"bufio"
	"context"
	"encoding/base64"
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
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	box, err := seal.New(seal.Config{Keys: []string{"t=" + base64.StdEncoding.EncodeToString(make([]byte, 32))}})
	if err != nil {
		t.Fatal(err)
	}
	pool := pgtest.New(t, schema, outbox.Migrations, inbox.Migrations, pg.Migrations{Name: schema, FS: store.Migrations})
	return &fixture{t: t, pool: pool, store: store.New(pool, box)}
}

func newEvent(ws uuid.UUID, body string) deliveries.Event {
	call := uuid.New()
	return deliveries.Event{
		ID:          uuid.New(),
		WorkspaceID: ws,
		CallID:      &call,
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

// replica serves the streams of one hub at a URL. The query names the workspace and the position.
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
		cursor := store.StreamCursor{IngestedAt: time.Now()}
		_, _ = fmt.Sscan(req.URL.Query().Get("after"), &cursor.Position)
		stream, err := r.hub.Open(req.Context(), uuid.MustParse(req.URL.Query().Get("workspace")), cursor, nil)
		if err != nil {
			http.Error(w, err.Error(), http.StatusTooManyRequests)
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

// listen connects a client and returns the ids that it receives. The channel is closed at the end
// of the response.
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
		for lines.Scan() {
			if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
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

func TestHub_FiveHundredStreams(t *testing.T) {
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

func TestStream_EventsThatAreStoredAreSentFirst(t *testing.T) {
	t.Parallel()
	f, ws := newFixture(t), uuid.New()
	var stored []deliveries.Event
	for range 3 * pageSize {
		stored = append(stored, newEvent(ws, "{}"))
	}
	f.ingest(stored...)
	ids := f.listen(f.replica(), ws) // the position is 0
	f.wantIDs(ids, stored)
	fresh := newEvent(ws, "{}")
	f.ingest(fresh)
	f.wantIDs(ids, []deliveries.Event{fresh})
}

func TestStream_FormatOfAMessage(t *testing.T) {
	t.Parallel()
	f, ws := newFixture(t), uuid.New()
	ev := newEvent(ws, "{\"a\":\n1}")
	f.ingest(ev)
	response, err := http.Get(f.replica().url + "?workspace=" + ws.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	want := ": open\n\nid: " + ev.ID.String() + "\nevent: call.ringing\ndata: {\"a\":\ndata: 1}\n\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(response.Body, got); err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("message = %q, want %q", got, want)
	}
}

func TestStream_SendsComments(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.replica(func(h *Hub) { h.commentInterval = time.Millisecond })
	response, err := http.Get(r.url + "?workspace=" + uuid.NewString())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	want := ": open\n\n: keep-alive\n\n: keep-alive\n\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(response.Body, got); err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("comments = %q, want %q", got, want)
	}
}

// The client does not read. The bodies fill the buffers of the connection.
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

// The end of the process must not cut a message.
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
	want := []string{": open", "", "id: " + ev.ID.String(), "event: call.ringing", "data: {}", ""}
	if !slices.Equal(got, want) {
		t.Errorf("lines = %q, want %q", got, want)
	}
}

// After a failover to an asynchronous standby, the newest positions can be missing.
func TestHub_EndsStreamsIfTheDatabaseLostPositions(t *testing.T) {
	t.Parallel()
	f, ws := newFixture(t), uuid.New()
	ids := f.listen(f.replica(), ws)
	batch := []deliveries.Event{newEvent(ws, "{}"), newEvent(ws, "{}")}
	f.ingest(batch...)
	f.wantIDs(ids, batch)
	time.Sleep(2 * maxPoll) // the hub has seen the position
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
	close(first.closing) // its five streams end
	for range MaxStreams / 2 {
		<-first.sent
	}
	f.listen(second, ws)
}
