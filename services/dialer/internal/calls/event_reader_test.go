package calls

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/store"
)

const lease = time.Minute

type fakeStream struct {
	carrier.Carrier
	name   string
	events []carrier.Event
	known  map[uuid.UUID]carrier.CallStatus
}

func (f *fakeStream) Name() string { return "sim" }

func (f *fakeStream) Events(_ context.Context, after int64, _ time.Duration) (carrier.Batch, error) {
	from := slices.IndexFunc(f.events, func(e carrier.Event) bool { return e.Seq > after })
	if from < 0 {
		from = len(f.events)
	}
	return carrier.Batch{Stream: f.name, Events: f.events[from:]}, nil
}

func (f *fakeStream) Find(_ context.Context, id uuid.UUID) (carrier.CallStatus, error) {
	known, found := f.known[id]
	if !found {
		return carrier.CallStatus{}, carrier.ErrUnknownCall
	}
	return known, nil
}

type readerFixture struct {
	t      *testing.T
	pool   *pgxpool.Pool
	stream *fakeStream
	callID uuid.UUID
	begun  time.Time
}

func newReaderFixture(t *testing.T) *readerFixture {
	t.Helper()
	r := &readerFixture{
		t: t, callID: uuid.Must(uuid.NewV7()), begun: time.Now().UTC().Truncate(time.Second),
		stream: &fakeStream{name: "a", known: map[uuid.UUID]carrier.CallStatus{}},
		pool: pgtest.New(
			t,
			"dialer",
			outbox.Migrations,
			inbox.Migrations,
			pg.Migrations{Name: "dialer", FS: store.Migrations},
		),
	}
	r.exec(`
		INSERT INTO calls (call_id, call_request_id, workspace_id, direction, from_number, to_e164, agent_id, status,
			max_call_seconds, deadline_at)
		VALUES ($1, $1, $1, 'outbound', '+15005550006', '+14155550101', $1, 'fenced', 600, now() + interval '1 hour')`,
		r.callID)
	return r
}

func (r *readerFixture) exec(sql string, args ...any) {
	r.t.Helper()
	if _, err := r.pool.Exec(r.t.Context(), sql, args...); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

func (r *readerFixture) store() *store.Store {
	return store.New(r.pool, uuid.New(), store.Timing{InstanceLease: lease, RingLimit: lease, WatchdogGrace: lease})
}

func (r *readerFixture) reader() *EventReader {
	st := r.store()
	return NewEventReader(st, r.stream, NewApplier(st, nil, nil))
}

func (r *readerFixture) add(id uuid.UUID, kind carrier.Kind, seconds int) {
	dialed := r.begun
	e := carrier.Event{
		Seq: int64(
			len(r.stream.events) + 1,
		), At: r.begun.Add(time.Duration(seconds) * time.Second), Kind: kind, CallID: id,
		From: "+15005550006", To: "+14155550101", DialedAt: &dialed,
	}
	if kind == carrier.Ended {
		e.Cause = callstate.NormalClearing
	}
	r.stream.events = append(r.stream.events, e)
}

func (r *readerFixture) mustRead(reader *EventReader) {
	r.t.Helper()
	isReader, err := reader.readBatch(r.t.Context())
	if err != nil {
		r.t.Fatalf("read: %v", err)
	}
	if !isReader {
		r.t.Fatal("read: this process is not the reader")
	}
}

func (r *readerFixture) takeOver() {
	r.exec("UPDATE carrier_cursors SET reader_until = now() - interval '1 second'")
}

func (r *readerFixture) published() (kinds []string) {
	r.t.Helper()
	rows, err := r.pool.Query(r.t.Context(), "SELECT payload FROM outbox ORDER BY id")
	if err != nil {
		r.t.Fatal(err)
	}
	payloads, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		r.t.Fatal(err)
	}
	for _, payload := range payloads {
		var event eventv1.DialEvent
		if err := proto.Unmarshal(payload, &event); err != nil {
			r.t.Fatal(err)
		}
		message := event.ProtoReflect()
		kinds = append(kinds, string(message.WhichOneof(message.Descriptor().Oneofs().ByName("event")).Name()))
	}
	return kinds
}

func (r *readerFixture) wantPublished(want ...string) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.published()); diff != "" {
		r.t.Errorf("published events (-want +got):\n%s", diff)
	}
}

func (r *readerFixture) wantCursor(want int64) {
	r.t.Helper()
	var got int64
	if err := r.pool.QueryRow(r.t.Context(), "SELECT cursor FROM carrier_cursors").Scan(&got); err != nil {
		r.t.Fatal(err)
	}
	if got != want {
		r.t.Errorf("position in the stream = %d, want %d", got, want)
	}
}

func TestEventReader_RepeatedEventsChangeNothing(t *testing.T) {
	t.Parallel()
	r := newReaderFixture(t)
	kinds := []carrier.Kind{carrier.Accepted, carrier.Ringing, carrier.Ringing, carrier.Answered, carrier.Answered}
	for _, kind := range kinds {
		r.add(r.callID, kind, 1)
	}
	reader := r.reader()
	r.mustRead(reader)
	r.add(r.callID, carrier.Answered, 1)
	r.add(r.callID, carrier.Ended, 5)
	r.add(r.callID, carrier.Ended, 6)
	r.mustRead(reader)
	r.takeOver()
	r.mustRead(r.reader())
	r.wantPublished("dialing", "ringing", "answered", "ended", "analysed")
	r.wantCursor(8)
}

func TestEventReader_EventsAfterTheEndChangeNothing(t *testing.T) {
	t.Parallel()
	r := newReaderFixture(t)
	reader := r.reader()
	r.add(r.callID, carrier.Answered, 2)
	r.add(r.callID, carrier.Ended, 5)
	r.mustRead(reader)
	r.add(r.callID, carrier.Accepted, 0)
	r.add(r.callID, carrier.Ringing, 1)
	r.add(r.callID, carrier.Answered, 2)
	r.mustRead(reader)
	r.wantPublished("dialing", "answered", "ended", "analysed")
	r.wantCursor(5)
}

func TestEventReader_CallWithoutARowIsMarkedToBeHungUp(t *testing.T) {
	t.Parallel()
	r := newReaderFixture(t)
	unknown, ended := uuid.New(), uuid.New()
	r.add(unknown, carrier.Ringing, 1)
	r.add(ended, carrier.Ringing, 1)
	r.add(r.callID, carrier.Ringing, 1)
	r.add(ended, carrier.Ended, 2)
	r.mustRead(r.reader())
	rows, err := r.pool.Query(t.Context(), "SELECT call_id FROM orphaned_calls")
	if err != nil {
		t.Fatal(err)
	}
	orphans, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]uuid.UUID{unknown}, orphans); diff != "" {
		t.Errorf("calls to hang up (-want +got):\n%s", diff)
	}
	r.wantPublished("dialing", "ringing")
	r.wantCursor(4)
}

// The process has not detected yet that its lease has ended.
func TestEventReader_AppliesNothingAfterItsLeaseEnded(t *testing.T) {
	t.Parallel()
	r := newReaderFixture(t)
	former, next := r.reader(), r.reader()
	r.add(r.callID, carrier.Ringing, 1)
	r.mustRead(former)
	if isReader, err := next.readBatch(t.Context()); err != nil {
		t.Errorf("read while another process is the reader: %v", err)
	} else if isReader {
		t.Error("read while another process is the reader: reader = true, want false")
	}
	r.takeOver()
	r.add(r.callID, carrier.Answered, 2)
	r.mustRead(next)
	r.add(r.callID, carrier.Ended, 3)
	if _, err := former.readBatch(t.Context()); !errors.Is(err, store.ErrLost) {
		t.Errorf("read by the former reader = %v, want ErrLost", err)
	}
	r.wantPublished("dialing", "ringing", "answered")
	r.wantCursor(2)
	r.mustRead(next)
	r.wantPublished("dialing", "ringing", "answered", "ended", "analysed")
}

// The carrier loses its events in a restart, and starts a new stream.
func TestEventReader_ReadsANewStreamFromItsBeginning(t *testing.T) {
	t.Parallel()
	r := newReaderFixture(t)
	reader := r.reader()
	r.add(r.callID, carrier.Ringing, 1)
	r.add(r.callID, carrier.Ringing, 1)
	r.mustRead(reader)
	r.stream.name, r.stream.events = "b", nil
	r.add(r.callID, carrier.Answered, 2)
	r.mustRead(reader)
	r.wantCursor(0)
	r.mustRead(reader)
	r.wantPublished("dialing", "ringing", "answered")
	r.wantCursor(1)
}
