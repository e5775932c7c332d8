package rejoining_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/kafkatest"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/pgtest"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/rejoining"
	"ringfence.dev/services/dialer/internal/request"
	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/internal/store/past"
	"ringfence.dev/services/dialer/migrations"
)

// restored is a dialer whose database is older than its topic.
type restored struct {
	*testing.T
	pool      *pgxpool.Pool
	store     *store.Store
	cfg       kafka.Config
	workspace uuid.UUID
}

func newRestored(t *testing.T) *restored {
	pool := pgtest.New(t, "dialer", outbox.Migrations, inbox.Migrations, pg.Migrations{Name: "dialer", FS: migrations.FS})
	return &restored{t, pool, store.New(pool, uuid.New(), store.Timing{InstanceLease: time.Second, ClaimLease: time.Second, QueueLimit: time.Hour}), kafkatest.New(t), uuid.New()}
}

// order puts a request into the queue and says whether it was new.
func (r *restored) order(id uuid.UUID) bool {
	r.Helper()
	err := pgx.BeginFunc(r.Context(), r.pool, func(tx pgx.Tx) error {
		return r.store.Enqueue(r.Context(), tx, request.Request{CallRequestID: id, WorkspaceID: r.workspace, To: "+14155550101", AgentID: uuid.New(), MaxCallSeconds: 60, DueAt: time.Now()},
			kafka.Skipf("known"))
	})
	return err == nil
}

// told publishes facts as the dialer did before the restore.
func (r *restored) told(events ...*eventv1.DialEvent) {
	r.Helper()
	client, err := kafka.NewClient(r.cfg, "test", nil)
	if err != nil {
		r.Fatal(err)
	}
	defer client.Close()
	for _, event := range events {
		event.WorkspaceId, event.OccurredAt = r.workspace.String(), timestamppb.Now()
		value, err := proto.Marshal(event)
		if err != nil {
			r.Fatal(err)
		}
		record := &kgo.Record{Topic: kafka.DialEvents.Name, Key: []byte(event.CallRequestId), Value: value, Headers: []kgo.RecordHeader{{Key: kafka.HeaderID, Value: []byte(uuid.NewString())}}}
		if err := client.ProduceSync(r.Context(), record).FirstErr(); err != nil {
			r.Fatal(err)
		}
	}
}

func (r *restored) await() {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 30*time.Second)
	defer cancel()
	if err := rejoining.Await(ctx, r.cfg, past.New(r.pool)); err != nil {
		r.Fatal(err)
	}
}

func (r *restored) state(id uuid.UUID) (state string, fences int) {
	r.Helper()
	err := r.pool.QueryRow(r.Context(), `SELECT q.state, (SELECT count(*) FROM fences f WHERE f.call_request_id = q.call_request_id) FROM dial_queue q WHERE call_request_id = $1`, id).Scan(&state, &fences)
	if err != nil {
		r.Errorf("request %s: %v", id, err)
	}
	return state, fences
}

func dialing(id uuid.UUID) *eventv1.DialEvent {
	return &eventv1.DialEvent{CallRequestId: id.String(), Event: &eventv1.DialEvent_Dialing{Dialing: &eventv1.Dialing{}}}
}

func called(id, call uuid.UUID, status string, version int64) *eventv1.DialEvent {
	event := dialing(id)
	event.Call = &eventv1.Call{CallId: call.String(), Direction: "outbound", From: "+15005550006", ToE164: "+1415555" + id.String()[:4], AgentId: uuid.NewString(),
		Status: status, Version: version, DialedAt: timestamppb.Now()}
	if status == "completed" {
		event.Call.EndedAt, event.Call.HangupCause = timestamppb.Now(), "normal_clearing"
		event.Event = &eventv1.DialEvent_Ended{Ended: &eventv1.Ended{}}
	}
	return event
}

func TestAwait_OlderDatabaseDialsNothingTwice(t *testing.T) {
	t.Parallel()
	r := newRestored(t)
	queued, rang, lost, unsure, withdrawn, untouched := uuid.New(), uuid.New(), uuid.New(), uuid.New(), uuid.New(), uuid.New()
	for _, id := range []uuid.UUID{queued, rang, unsure, withdrawn, untouched} {
		r.order(id)
	}
	calls := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
	r.told(
		dialing(queued), called(queued, calls[0], "initiated", 1), called(queued, calls[0], "completed", 2), called(queued, calls[0], "initiated", 1), // told again, late
		dialing(rang), called(rang, calls[1], "ringing", 2),
		dialing(lost), called(lost, calls[2], "completed", 3),
		dialing(unsure),
		&eventv1.DialEvent{CallRequestId: withdrawn.String(), Event: &eventv1.DialEvent_Withdrawn{Withdrawn: &eventv1.Withdrawn{}}},
	)
	for range 2 { // a second start finds nothing to do
		r.await()
		for _, row := range []struct {
			what   string
			id     uuid.UUID
			state  string
			fences int
		}{
			{"what was dialled and ended", queued, "ended", 1}, {"what rang", rang, "dialing", 1}, {"what the database never knew", lost, "ended", 1},
			{"what was about to be dialled", unsure, "failed", 0}, {"what was withdrawn", withdrawn, "withdrawn", 0}, {"what nobody told of", untouched, "queued", 0},
		} {
			if state, fences := r.state(row.id); state != row.state || fences != row.fences {
				t.Errorf("%s is %s with %d fences, want %s with %d", row.what, state, fences, row.state, row.fences)
			}
		}
		for _, id := range []uuid.UUID{queued, lost, unsure} {
			if r.order(id) {
				t.Errorf("request %s was queued once more", id)
			}
		}
	}
	var live, facts int
	err := r.pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM calls WHERE ended_at IS NULL AND owner IS NOT NULL AND call_id = $1), (SELECT count(*) FROM outbox WHERE key = convert_to($2, 'UTF8'))`,
		calls[1], unsure.String()).Scan(&live, &facts)
	if err != nil || live != 1 || facts != 1 {
		t.Errorf("%d calls for recovery to end, %d facts of the one that nobody knows: %v, want one each", live, facts, err)
	}
}

func TestAwait_DatabaseThatKnowsIsNotHeldUp(t *testing.T) {
	t.Parallel()
	r := newRestored(t)
	r.await() // no topic yet, or an empty one
	id := uuid.New()
	r.order(id)
	r.told(&eventv1.DialEvent{CallRequestId: id.String(), Event: &eventv1.DialEvent_Rescheduled{Rescheduled: &eventv1.Rescheduled{}}})
	r.await()
	if state, _ := r.state(id); state != "queued" {
		t.Errorf("a request that waits is %s", state)
	}
}
