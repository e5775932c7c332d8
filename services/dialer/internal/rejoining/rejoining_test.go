package rejoining_test

import (
	"cmp"
	"context"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/kafkatest"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/pgtest"
	"ringfence.dev/libs/polltest"
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
	var added []bool
	err := pgx.BeginFunc(r.Context(), r.pool, func(tx pgx.Tx) (err error) {
		added, err = r.store.Enqueue(r.Context(), tx, request.Request{
			CallRequestID: id, WorkspaceID: r.workspace, To: "+14155550101", AgentID: uuid.New(), MaxCallSeconds: 60, DueAt: time.Now(),
		})
		return err
	})
	return err == nil && added[0]
}

// told publishes facts as the dialer did before the restore.
func (r *restored) told(events ...*eventv1.DialEvent) {
	r.Helper()
	r.toldAs("", events...)
}

// toldAs publishes facts under one key, so that they share a partition; "" is each one's own.
func (r *restored) toldAs(key string, events ...*eventv1.DialEvent) {
	r.Helper()
	client, err := kafka.NewClient(r.cfg, "test", nil)
	if err != nil {
		r.Fatal(err)
	}
	defer client.Close()
	var records []*kgo.Record
	for _, event := range events {
		event.WorkspaceId, event.OccurredAt = r.workspace.String(), timestamppb.Now()
		value, err := proto.Marshal(event)
		if err != nil {
			r.Fatal(err)
		}
		records = append(records, &kgo.Record{
			Topic: kafka.DialEvents.Name, Key: []byte(cmp.Or(key, event.CallRequestId)), Value: value,
			Headers: []kgo.RecordHeader{{Key: kafka.HeaderID, Value: []byte(uuid.NewString())}},
		})
	}
	if err := client.ProduceSync(r.Context(), records...).FirstErr(); err != nil {
		r.Fatal(err)
	}
}

func (r *restored) await() {
	r.Helper()
	if err := r.awaitFor(polltest.Timeout); err != nil {
		r.Fatal(err)
	}
}

func (r *restored) awaitFor(patience time.Duration) error {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	return rejoining.Await(ctx, r.cfg, past.New(r.pool), 0)
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
	for _, id := range []uuid.UUID{queued, rang, unsure, withdrawn} { // claimed at the time of the backup
		if _, err := r.pool.Exec(t.Context(), `UPDATE dial_queue SET claimed_by = $1, look_at = now() + interval '1 hour' WHERE call_request_id = $1`, id); err != nil {
			t.Fatal(err)
		}
	}
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
			if state, fences := r.state(row.id); state != row.state {
				t.Errorf("%s: state = %v, want %v", row.what, state, row.state)
			} else if fences != row.fences {
				t.Errorf("%s: fences = %v, want %v", row.what, fences, row.fences)
			}
		}
		for _, id := range []uuid.UUID{queued, lost, unsure} {
			if r.order(id) {
				t.Errorf("request %s was queued once more", id)
			}
		}
	}
	var inUse []uuid.UUID
	err := r.pool.QueryRow(t.Context(), `SELECT array_agg(call_request_id) FROM dial_queue
		WHERE state = 'dialing' OR state = 'queued' AND claimed_by IS NOT NULL`).Scan(&inUse)
	if err != nil {
		t.Fatalf("read the requests in use: %v", err)
	}
	if diff := gocmp.Diff([]uuid.UUID{rang}, inUse); diff != "" {
		t.Errorf("requests in use (-want +got):\n%s", diff)
	}
	var live, facts int
	err = r.pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM calls WHERE ended_at IS NULL AND owner IS NOT NULL AND call_id = $1), (SELECT count(*) FROM outbox WHERE key = convert_to($2, 'UTF8'))`,
		calls[1], unsure.String()).Scan(&live, &facts)
	switch {
	case err != nil:
		t.Errorf("error = %v, want none", err)
	case live != 1:
		t.Errorf("live = %v, want 1", live)
	case facts != 1:
		t.Errorf("facts = %v, want 1", facts)
	}
}

func TestAwait_DatabaseThatKnowsIsNotHeldUp(t *testing.T) {
	t.Parallel()
	r := newRestored(t)
	r.await() // no topic yet, or an empty one
	id := uuid.New()
	r.order(id)
	r.told(rescheduled(id, time.Now().Add(-time.Hour)))
	r.await()
	if state, _ := r.state(id); state != "queued" {
		t.Errorf("a request that waits is %s", state)
	}
}

// inbound is news of a call that somebody made to us.
func inbound(call uuid.UUID, status string, version int64) *eventv1.DialEvent {
	event := called(uuid.New(), call, status, version)
	event.CallRequestId, event.Call.Direction = "", "inbound"
	return event
}

func rescheduled(id uuid.UUID, until time.Time) *eventv1.DialEvent {
	return &eventv1.DialEvent{CallRequestId: id.String(), Event: &eventv1.DialEvent_Rescheduled{Rescheduled: &eventv1.Rescheduled{ScheduledFor: timestamppb.New(until)}}}
}

// TestAwait_WhateverWasToldLast: after the last dial of a day people called us, or requests were put off to the next: then those are the newest facts, and the dials stand before them.
func TestAwait_WhateverWasToldLast(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		last func(r *restored) *eventv1.DialEvent
	}{
		{"people called us", func(*restored) *eventv1.DialEvent { return inbound(uuid.New(), "completed", 4) }},
		{"requests were put off that the database has", func(r *restored) *eventv1.DialEvent {
			id := uuid.New()
			r.order(id)
			return rescheduled(id, time.Now().Add(12*time.Hour))
		}},
		{"requests were put off that it does not have", func(*restored) *eventv1.DialEvent { return rescheduled(uuid.New(), time.Now().Add(12*time.Hour)) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRestored(t)
			dialled := uuid.New()
			r.order(dialled)
			one := dialled.String()
			r.toldAs(one, dialing(dialled), called(dialled, uuid.New(), "completed", 3))
			for range 40 {
				r.toldAs(one, tt.last(r))
			}
			r.await()
			if state, fences := r.state(dialled); state != "ended" {
				t.Errorf(`what was dialled before: state = %q, want "ended"`, state)
			} else if fences != 1 {
				t.Errorf("what was dialled before: fences = %v, want 1", fences)
			}
		})
	}
}

// TestAwait_KnowsWhatWasPutOffAndWhoCalled: none of it is a reason to read the whole topic again.
func TestAwait_KnowsWhatWasPutOffAndWhoCalled(t *testing.T) {
	t.Parallel()
	r := newRestored(t)
	put, unheard := uuid.New(), uuid.New()
	r.order(put)
	r.told(inbound(uuid.New(), "ringing", 1), rescheduled(put, time.Now().Add(-time.Hour)))
	r.await()
	r.told(dialing(unheard)) // of a request that the glance does not see any more
	for range 30 {
		r.toldAs(unheard.String(), rescheduled(put, time.Now().Add(-time.Hour)))
	}
	r.await()
	var rows int
	if err := r.pool.QueryRow(t.Context(), `SELECT count(*) FROM dial_queue WHERE call_request_id = $1`,
		unheard).Scan(&rows); err != nil {
		t.Errorf("the whole topic was read: QueryRow: %v", err)
	} else if rows != 0 {
		t.Errorf("the whole topic was read: rows = %v, want 0", rows)
	}
}

// TestAwait_KilledInTheMiddleIsOnHoldAgain: what a start looks at is settled last.
func TestAwait_KilledInTheMiddleIsOnHoldAgain(t *testing.T) {
	t.Parallel()
	r := newRestored(t)
	newest, early := uuid.New(), uuid.New()
	r.order(newest)
	r.order(early)
	one, events := newest.String(), []*eventv1.DialEvent{called(early, uuid.New(), "completed", 1)}
	for range 600 {
		events = append(events, called(uuid.New(), uuid.New(), "completed", 1))
	}
	call := uuid.New()
	for version := range int64(25) {
		events = append(events, called(newest, call, "completed", version+1))
	}
	r.toldAs(one, events...)
	trip := `CREATE FUNCTION trip() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN IF NEW.call_request_id = '` + early.String() + `' THEN RAISE 'killed'; END IF; RETURN NEW; END $f$;
		CREATE TRIGGER trip BEFORE INSERT ON fences FOR EACH ROW EXECUTE FUNCTION trip()`
	owner := pgtest.Owner(t, r.pool, "dialer")
	if _, err := owner.Exec(t.Context(), trip); err != nil {
		t.Fatal(err)
	}
	if err := r.awaitFor(5 * time.Second); err == nil {
		t.Fatal("the hold is over, and not everything is settled")
	}
	if state, _ := r.state(newest); state != "queued" {
		t.Errorf("the newest is %s: a start that looks at it takes the rest for known", state)
	}
	if _, err := owner.Exec(t.Context(), `DROP TRIGGER trip ON fences`); err != nil {
		t.Fatal(err)
	}
	r.await()
	for what, id := range map[string]uuid.UUID{"the newest": newest, "what could not be settled at first": early} {
		if state, fences := r.state(id); state != "ended" {
			t.Errorf(`%s: state = %q, want "ended"`, what, state)
		} else if fences != 1 {
			t.Errorf("%s: fences = %v, want 1", what, fences)
		}
	}
}

// TestAwait_TopicIsNotThere: a first start goes on; a database that has dialled waits for the topic that tells of it.
func TestAwait_TopicIsNotThere(t *testing.T) {
	t.Parallel()
	r := newRestored(t)
	client, err := kafka.NewClient(r.cfg, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client.Client).DeleteTopics(t.Context(), kafka.DialEvents.Name); err != nil {
		t.Fatal(err)
	}
	r.await()
	if _, err := r.pool.Exec(t.Context(), `INSERT INTO fences (call_id, call_request_id, attempt, trunk, instance_id) VALUES ($1, $1, 1, 'sim', $1)`, uuid.New()); err != nil {
		t.Fatal(err)
	}
	if err := r.awaitFor(3 * time.Second); err == nil {
		t.Error("a database that has dialled went on without its topic")
	}
	r.marked(time.Hour, "another")
	if err := r.awaitFor(3 * time.Second); err == nil {
		t.Error("without its topic: awaitFor = nil, want an error")
	} else if r.mark().Stands() {
		t.Error("without its topic: mark is valid = true, want false")
	}
	if err := kafka.EnsureTopics(t.Context(), client, []kafka.Topic{kafka.DialEvents}); err != nil {
		t.Fatal(err)
	}
	r.await()
}
