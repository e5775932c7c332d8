package dbfailover

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/kafkatest"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

type fixture struct {
	*testing.T
	pool      *pgxpool.Pool
	store     *store.Store
	cfg       kafka.Config
	publisher *Publisher
	workspace uuid.UUID
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	w := &fixture{T: t, workspace: uuid.Must(uuid.NewV7()), cfg: kafkatest.New(t)}
	w.pool = pgtest.New(t, "dialer", outbox.Migrations, inbox.Migrations, pg.Migrations{Name: "dialer", FS: store.Migrations})
	w.store = store.New(w.pool, uuid.Must(uuid.NewV7()), store.Timing{
		InstanceLease: time.Minute, ClaimLease: time.Minute, QueueLimit: time.Hour, CapacityLimit: time.Hour,
		RingLimit: time.Minute, WatchdogGrace: time.Minute,
	})
	var err error
	if w.publisher, err = NewPublisher(w.cfg, prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.publisher.Close)
	if !w.publisher.findTopic(t.Context()) {
		t.Fatal("the topic was not found")
	}
	return w
}

// newReconciler returns a reconciler that calls duringWait instead of waiting for the other
// dialers. duringWait can be nil.
func (w *fixture) newReconciler(duringWait func()) *Reconciler {
	r := NewReconciler(w.cfg, w.publisher, w.store, time.Minute, prometheus.NewRegistry())
	r.waitForDialers = func(context.Context) error {
		if duringWait != nil {
			duringWait()
		}
		return nil
	}
	return r
}

// reconcile runs one check, after which dialing must be permitted.
func (w *fixture) reconcile() {
	w.Helper()
	r := w.newReconciler(nil)
	if err := r.checkServer(w.Context()); err != nil {
		w.Fatalf("check = %v", err)
	}
	if !r.MayDial() {
		w.Fatalf("MayDial after check = false: %v", r.Ready())
	}
}

func (w *fixture) moveTo(server string) {
	w.Helper()
	_, err := pgtest.Owner(w, w.pool, "dialer").Exec(w.Context(), fmt.Sprintf(
		`CREATE OR REPLACE FUNCTION server_identity() RETURNS text LANGUAGE sql STABLE AS $$ SELECT '%s' $$`, server))
	if err != nil {
		w.Fatal(err)
	}
}

func (w *fixture) exec(sql string, args ...any) {
	w.Helper()
	if _, err := w.pool.Exec(w.Context(), sql, args...); err != nil {
		w.Fatal(err)
	}
}

// newIntent returns an intent. The process that published it is dead.
func (w *fixture) newIntent() store.Intent {
	id, now := uuid.Must(uuid.NewV7()), time.Now()
	return store.Intent{
		CallRequestID: id, WorkspaceID: w.workspace, CallID: uuid.Must(uuid.NewV7()), InstanceID: uuid.Must(uuid.NewV7()),
		From: "+15005550006", To: fmt.Sprintf("+1415%07d", now.UnixNano()%10_000_000), Trunk: "sim",
		AgentID: uuid.Must(uuid.NewV7()), MaxCallSeconds: 600, QueuedAt: &now, At: now,
	}
}

// otherIntent returns an intent of another process for the same request.
func otherIntent(i store.Intent) store.Intent {
	i.CallID, i.InstanceID = uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	return i
}

func (w *fixture) enqueue(i store.Intent) {
	w.Helper()
	r := dialqueue.Request{
		CallRequestID: i.CallRequestID, WorkspaceID: i.WorkspaceID, To: phone.Number(i.To), AgentID: i.AgentID,
		MaxCallSeconds: i.MaxCallSeconds, QueuedAt: i.QueuedAt, DueAt: i.At.Add(-time.Second),
	}
	err := pgx.BeginFunc(w.Context(), w.pool, func(tx pgx.Tx) error {
		_, err := w.store.Enqueue(w.Context(), tx, r)
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
}

func (w *fixture) publish(intents ...store.Intent) {
	w.Helper()
	for _, i := range intents {
		if err := w.publisher.Intend(w.Context(), i); err != nil {
			w.Fatalf("Intend = %v", err)
		}
	}
}

func (w *fixture) withdraw(i store.Intent) {
	w.Helper()
	w.publisher.Withdraw(i)
	if err := w.publisher.client.Flush(w.Context()); err != nil {
		w.Fatal(err)
	}
}

func (w *fixture) insertInstance(i store.Intent) {
	w.Helper()
	w.exec(`INSERT INTO instances (instance_id) VALUES ($1)`, i.InstanceID)
}

func (w *fixture) inAnotherCall(i store.Intent) {
	w.Helper()
	w.exec(`INSERT INTO calls (call_id, call_request_id, workspace_id, direction, from_number, to_e164, agent_id, status,
		max_call_seconds, deadline_at) VALUES ($1, $1, $2, 'outbound', '', $3, $1, 'ringing', 1, now())`,
		uuid.Must(uuid.NewV7()), w.workspace, i.To)
}

// publishForTwoTrunks publishes two intents of a request, one for each of two trunks. The first
// trunk refused the call, so the first intent is withdrawn. The second intent is i. It has no
// fence.
func (w *fixture) publishForTwoTrunks(i store.Intent, instance uuid.UUID) {
	w.Helper()
	w.enqueue(i)
	refused := i
	refused.CallID, refused.InstanceID = uuid.Must(uuid.NewV7()), instance
	w.publish(refused, i)
	w.withdraw(refused)
	w.insertFence(refused)
}

// publishAfterAnotherFence publishes two intents of one request, each of another process. The first
// intent has a fence, and publishAfterAnotherFence does not withdraw it. The second intent is i. It
// has no fence.
func (w *fixture) publishAfterAnotherFence(i store.Intent) {
	w.Helper()
	earlier := otherIntent(i)
	w.enqueue(i)
	w.publish(earlier, i)
	w.insertFence(earlier)
}

// checkErasureFails checks that a request cannot be erased before the reconciliation.
func (w *fixture) checkErasureFails(i store.Intent) {
	w.Helper()
	err := pgx.BeginFunc(w.Context(), w.pool, func(tx pgx.Tx) error {
		erasure := store.Erasure{ID: uuid.New(), WorkspaceID: i.WorkspaceID}
		return w.store.EraseRequest(w.Context(), tx, i.CallRequestID, erasure)
	})
	if !errors.Is(err, store.ErrServerChanged) {
		w.Errorf("EraseRequest before the reconciliation = %v, want ErrServerChanged", err)
	}
}

func (w *fixture) insertLeg(i store.Intent) {
	w.Helper()
	w.exec(`INSERT INTO sip_legs (call_id, trunk_id, inbound, from_number, to_number, owner)
		VALUES ($1, $1, false, '', '', $1)`, i.CallID)
}

func (w *fixture) insertFence(i store.Intent) {
	w.Helper()
	w.exec(`INSERT INTO fences (call_id, call_request_id, attempt, trunk, instance_id) VALUES ($1, $2, 1, 'sim', $3)`,
		i.CallID, i.CallRequestID, i.InstanceID)
	w.exec(`INSERT INTO calls (call_id, call_request_id, workspace_id, direction, from_number, to_e164, agent_id, status,
		max_call_seconds, deadline_at, owner)
		VALUES ($1, $2, $3, 'outbound', $4, $5, $6, 'fenced', 600, now() + interval '1 hour', $7)`,
		i.CallID, i.CallRequestID, i.WorkspaceID, i.From, i.To, i.AgentID, i.InstanceID)
	w.exec(`UPDATE dial_queue SET state = 'dialing' WHERE call_request_id = $1`, i.CallRequestID)
}

type outcome struct {
	State string
	// Call is the status of the call. Owned is true if the process that published the intent owns the
	// call.
	Call   string
	Owned  bool
	Ending string
	// Failed is the number of events with the error dial_state_unknown.
	Fences, Failed int
}

func (w *fixture) outcome(i store.Intent) (got outcome) {
	w.Helper()
	const query = `
SELECT coalesce((SELECT state FROM dial_queue WHERE call_request_id = $1), ''),
	coalesce((SELECT status FROM calls WHERE call_id = $2), ''),
	EXISTS (SELECT FROM calls WHERE call_id = $2 AND owner = $3),
	coalesce((SELECT ending FROM calls WHERE call_id = $2), ''),
	(SELECT count(*) FROM fences WHERE call_request_id = $1),
	(SELECT count(*) FROM outbox WHERE key = convert_to($1::text, 'UTF8')
		AND position('dial_state_unknown'::bytea IN payload) > 0)`
	err := w.pool.QueryRow(w.Context(), query, i.CallRequestID, i.CallID, i.InstanceID).
		Scan(&got.State, &got.Call, &got.Owned, &got.Ending, &got.Fences, &got.Failed)
	if err != nil {
		w.Fatal(err)
	}
	return got
}

func TestReconcile_SettlesIntentsWithoutAFence(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		// before runs before the failover.
		before func(w *fixture, i store.Intent)
		// duringWait runs while the reconciler waits for the other dialers.
		duringWait func(w *fixture, i store.Intent)
		// withdrawnIntent adds a second intent of the request. Another process publishes this intent,
		// and withdraws it while the reconciler waits.
		withdrawnIntent bool
		want            outcome
	}{
		{
			name:   "the process that published the intent is dead",
			before: func(w *fixture, i store.Intent) { w.enqueue(i); w.publish(i) },
			want:   outcome{State: "dialing", Call: "fenced", Ending: "lost", Fences: 1},
		},
		{
			name:   "the process is dead, and the database lost the request too",
			before: func(w *fixture, i store.Intent) { w.publish(i) },
			want:   outcome{State: "dialing", Call: "fenced", Ending: "lost", Fences: 1},
		},
		{
			name:   "the process that published the intent is alive",
			before: func(w *fixture, i store.Intent) { w.enqueue(i); w.publish(i); w.insertInstance(i) },
			want:   outcome{State: "dialing", Call: "fenced", Owned: true, Fences: 1},
		},
		{
			name:   "the process is alive, and the database lost the request too",
			before: func(w *fixture, i store.Intent) { w.publish(i); w.insertInstance(i) },
			want:   outcome{State: "dialing", Call: "fenced", Owned: true, Fences: 1},
		},
		{
			name: "the process is alive, and the longest duration of the call has passed",
			before: func(w *fixture, i store.Intent) {
				i.At = i.At.Add(-time.Hour)
				w.enqueue(i)
				w.publish(i)
				w.insertInstance(i)
			},
			want: outcome{State: "dialing", Call: "fenced", Ending: "lost", Fences: 1},
		},
		{
			name: "another call to the number is live",
			before: func(w *fixture, i store.Intent) {
				w.enqueue(i)
				w.publish(i)
				w.insertInstance(i)
				w.inAnotherCall(i)
			},
			want: outcome{State: "failed", Failed: 1},
		},
		{
			name: "the process is alive, and the erasure of the person arrives before the reconciliation",
			before: func(w *fixture, i store.Intent) {
				w.enqueue(i)
				w.publish(i)
				w.insertInstance(i)
			},
			duringWait: func(w *fixture, i store.Intent) { w.checkErasureFails(i) },
			want:       outcome{State: "dialing", Call: "fenced", Owned: true, Fences: 1},
		},
		{
			name:   "the intent was withdrawn before the failover",
			before: func(w *fixture, i store.Intent) { w.enqueue(i); w.publish(i); w.withdraw(i) },
			want:   outcome{State: "queued"},
		},
		{
			name:       "the intent is withdrawn while the reconciler waits",
			before:     func(w *fixture, i store.Intent) { w.enqueue(i); w.publish(i) },
			duringWait: func(w *fixture, i store.Intent) { w.withdraw(i) },
			want:       outcome{State: "queued"},
		},
		{
			name: "the process is dead, and a withdrawn intent of another process follows",
			before: func(w *fixture, i store.Intent) {
				stale := otherIntent(i)
				w.enqueue(i)
				w.publish(i, stale)
				w.withdraw(stale)
			},
			want: outcome{State: "dialing", Call: "fenced", Ending: "lost", Fences: 1},
		},
		{
			name: "the process is alive, and a withdrawn intent of another process follows",
			before: func(w *fixture, i store.Intent) {
				stale := otherIntent(i)
				w.enqueue(i)
				w.insertInstance(i)
				w.publish(i, stale)
				w.withdraw(stale)
			},
			want: outcome{State: "dialing", Call: "fenced", Owned: true, Fences: 1},
		},
		{
			name: "an intent of another process follows and is withdrawn while the reconciler waits",
			before: func(w *fixture, i store.Intent) {
				w.enqueue(i)
				w.insertInstance(i)
				w.publish(i)
			},
			withdrawnIntent: true,
			want:            outcome{State: "dialing", Call: "fenced", Owned: true, Fences: 1},
		},
		{
			name: "the process is alive, and an intent of a dead process follows",
			before: func(w *fixture, i store.Intent) {
				w.enqueue(i)
				w.insertInstance(i)
				w.publish(i, otherIntent(i))
			},
			want: outcome{State: "dialing", Call: "fenced", Owned: true, Fences: 1},
		},
		{
			name: "the process is alive, and an intent of a dead process precedes",
			before: func(w *fixture, i store.Intent) {
				w.enqueue(i)
				w.insertInstance(i)
				w.publish(otherIntent(i), i)
			},
			want: outcome{State: "dialing", Call: "fenced", Owned: true, Fences: 1},
		},
		{
			name: "an intent of another process precedes, and both processes are alive",
			before: func(w *fixture, i store.Intent) {
				earlier := otherIntent(i)
				w.enqueue(i)
				w.insertInstance(earlier)
				w.insertInstance(i)
				w.publish(earlier, i)
			},
			want: outcome{State: "dialing", Call: "fenced", Owned: true, Fences: 1},
		},
		{
			name: "an intent of another process follows, both processes are alive, and the SIP leg is live",
			before: func(w *fixture, i store.Intent) {
				stale := otherIntent(i)
				w.enqueue(i)
				w.insertInstance(i)
				w.insertInstance(stale)
				w.publish(i, stale)
			},
			duringWait: func(w *fixture, i store.Intent) { w.insertLeg(i) },
			want:       outcome{State: "dialing", Call: "fenced", Owned: true, Fences: 1},
		},
		{
			name: "the database has the fence of a later intent of the same process",
			before: func(w *fixture, i store.Intent) {
				earlier := i
				earlier.CallID = uuid.Must(uuid.NewV7())
				w.enqueue(i)
				w.insertInstance(i)
				w.publish(earlier, i)
				w.insertFence(i)
			},
			want: outcome{State: "dialing", Call: "fenced", Owned: true, Fences: 1},
		},
		{
			name: "all intents of the request are withdrawn",
			before: func(w *fixture, i store.Intent) {
				next := otherIntent(i)
				w.enqueue(i)
				w.publish(i, next)
				w.withdraw(i)
				w.withdraw(next)
			},
			want: outcome{State: "queued"},
		},
		{
			name: "the database has the fence of the intent",
			before: func(w *fixture, i store.Intent) {
				w.enqueue(i)
				w.publish(i)
				w.exec(`INSERT INTO fences (call_id, call_request_id, attempt, trunk, instance_id)
					VALUES ($1, $2, 1, 'sim', $3)`, i.CallID, i.CallRequestID, i.InstanceID)
			},
			want: outcome{State: "queued", Fences: 1},
		},
		{
			name:   "the database has only the fence for the previous trunk",
			before: func(w *fixture, i store.Intent) { w.publishForTwoTrunks(i, i.InstanceID); w.insertInstance(i) },
			want:   outcome{State: "dialing", Call: "fenced", Owned: true, Fences: 2},
		},
		{
			name:   "the process is dead, and the database has only the fence for the previous trunk",
			before: func(w *fixture, i store.Intent) { w.publishForTwoTrunks(i, i.InstanceID) },
			want:   outcome{State: "dialing", Call: "fenced", Ending: "lost", Fences: 2},
		},
		{
			name: "the database has only the fence of another process, which released the request",
			before: func(w *fixture, i store.Intent) {
				w.publishForTwoTrunks(i, uuid.Must(uuid.NewV7()))
				w.insertInstance(i)
			},
			want: outcome{State: "dialing", Call: "fenced", Owned: true, Fences: 2},
		},
		{
			name: "the database has only the fence of another process, whose intent is not withdrawn",
			before: func(w *fixture, i store.Intent) {
				w.publishAfterAnotherFence(i)
				w.insertInstance(i)
			},
			want: outcome{State: "dialing", Fences: 1},
		},
		{
			name: "the database has only the fence of another process, and the SIP leg is live",
			before: func(w *fixture, i store.Intent) {
				w.publishAfterAnotherFence(i)
				w.insertInstance(i)
			},
			duringWait: func(w *fixture, i store.Intent) { w.insertLeg(i) },
			want:       outcome{State: "dialing", Call: "fenced", Owned: true, Fences: 2},
		},
		{
			name: "the request ended before the failover",
			before: func(w *fixture, i store.Intent) {
				w.enqueue(i)
				w.publish(i)
				w.exec(`UPDATE dial_queue SET state = 'blocked', ended_at = now()`)
			},
			want: outcome{State: "blocked"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			w.reconcile()
			i := w.newIntent()
			tt.before(w, i)
			stale := otherIntent(i)
			if tt.withdrawnIntent {
				w.publish(stale)
			}
			w.moveTo("b")
			r := w.newReconciler(func() {
				if tt.withdrawnIntent {
					w.withdraw(stale)
				}
				if tt.duringWait != nil {
					tt.duringWait(w, i)
				}
			})
			for range 2 { // the second check must change nothing
				if err := r.checkServer(t.Context()); err != nil {
					t.Fatalf("check = %v", err)
				}
			}
			if diff := cmp.Diff(tt.want, w.outcome(i)); diff != "" {
				t.Errorf("request differs (-want +got):\n%s", diff)
			}
		})
	}
}

// Two dialers have read the same open intents. Only the first dialer may settle them.
func TestSettleIntents_OnlyTheFirstOfTwoDialersSettlesThem(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.reconcile()
	w.moveTo("b")
	i := w.newIntent()
	w.enqueue(i)
	state, err := w.store.ServerState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []store.Settled{{Failed: 1}, {}} {
		settled, err := w.store.SettleIntents(t.Context(), state.Server, []store.Intent{i}, nil)
		if err != nil {
			t.Fatalf("SettleIntents = %v", err)
		}
		if settled != want {
			t.Errorf("settled = %+v, want %+v", settled, want)
		}
		want := outcome{State: "dialing", Call: "fenced", Ending: "lost", Fences: 1}
		if diff := cmp.Diff(want, w.outcome(i)); diff != "" {
			t.Errorf("request differs (-want +got):\n%s", diff)
		}
	}
}

// While this dialer waits, another dialer reconciles the database server. That dialer can then
// queue or dial a request again, so this dialer must change nothing.
func TestReconcile_ChangesNothingIfAnotherDialerHasReconciled(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.reconcile()
	i := w.newIntent()
	w.enqueue(i)
	w.publish(i)
	w.moveTo("b")
	r := w.newReconciler(func() { w.exec(`UPDATE reconciled_servers SET server = 'b'`) })
	if err := r.checkServer(t.Context()); err != nil {
		t.Fatalf("check = %v", err)
	}
	if !r.MayDial() {
		t.Errorf("MayDial = false: %v", r.Ready())
	}
	if diff := cmp.Diff(outcome{State: "queued"}, w.outcome(i)); diff != "" {
		t.Errorf("request differs (-want +got):\n%s", diff)
	}
}

// A dialer can die after it has published an intent and before the commit of the fence. If the
// database server has not changed, another dialer can dial the request.
func TestReconcile_SettlesNoIntentIfTheDatabaseServerIsUnchanged(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.reconcile()
	i := w.newIntent()
	w.enqueue(i)
	w.publish(i)
	w.reconcile()
	if diff := cmp.Diff(outcome{State: "queued"}, w.outcome(i)); diff != "" {
		t.Errorf("request differs (-want +got):\n%s", diff)
	}
}

// Consumers of dial-events.v1 can have received earlier events of a lost call, so its end must be
// published.
func TestReconcile_PublishesTheEndOfALostCall(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.reconcile()
	i := w.newIntent()
	w.enqueue(i)
	w.publish(i)
	w.moveTo("b")
	w.reconcile()
	due, err := w.store.DueHangups(t.Context())
	if err != nil {
		t.Fatalf("DueHangups = %v", err)
	}
	if diff := cmp.Diff([]store.Hangup{{CallID: i.CallID, Ending: callstate.EndingLost}}, due); diff != "" {
		t.Fatalf("calls to hang up differ (-want +got):\n%s", diff)
	}
	var version int64
	err = w.store.Change(t.Context(), []uuid.UUID{i.CallID}, func(calls map[uuid.UUID]*callstate.Call) {
		version = calls[i.CallID].Version
		calls[i.CallID].End(callstate.EndingLost.Unheard(time.Now()))
	})
	if err != nil {
		t.Fatalf("Change = %v", err)
	}
	if want := int64(1000); version < want {
		t.Errorf("version of a restored call = %d, want at least %d", version, want)
	}
	want := outcome{State: "ended", Call: "failed", Ending: "lost", Fences: 1, Failed: 1}
	if diff := cmp.Diff(want, w.outcome(i)); diff != "" {
		t.Errorf("request differs (-want +got):\n%s", diff)
	}
}

// A lost call is not inserted again if the number has another live call. The end of the lost call
// must be published anyway.
func TestReconcile_PublishesTheEndOfACallThatIsNotRestored(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.reconcile()
	i := w.newIntent()
	w.enqueue(i)
	w.publish(i)
	w.inAnotherCall(i)
	w.moveTo("b")
	w.reconcile()
	var payload []byte
	const query = `SELECT payload FROM outbox WHERE key = convert_to($1::text, 'UTF8')`
	if err := w.pool.QueryRow(t.Context(), query, i.CallRequestID).Scan(&payload); err != nil {
		t.Fatalf("read the event of the request: %v", err)
	}
	var event eventv1.DialEvent
	if err := proto.Unmarshal(payload, &event); err != nil {
		t.Fatal(err)
	}
	if event.GetEnded() == nil {
		t.Errorf("event = %v, want ended", &event)
	}
	if got := event.GetCall().GetCallId(); got != i.CallID.String() {
		t.Errorf("call of the event = %q, want %q", got, i.CallID)
	}
	if got, want := event.GetCall().GetErrorCode(), callstate.CodeDialStateUnknown; got != want {
		t.Errorf("error code = %q, want %q", got, want)
	}
}

// The limits count only requests whose look_at is not before scan_from. So the reconciliation must
// set look_at of an inserted request to a later time, as a claim does.
func TestReconcile_RestoredRequestsCountTowardsTheLimits(t *testing.T) {
	t.Parallel()
	for name, enqueued := range map[string]bool{
		"the database has the request": true, "the database lost the request": false,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			w.reconcile()
			i := w.newIntent()
			if enqueued {
				w.enqueue(i)
			}
			w.insertInstance(i)
			w.publish(i)
			w.moveTo("b")
			w.reconcile()
			var counted bool
			const query = `SELECT state = 'dialing' AND look_at > now() FROM dial_queue WHERE call_request_id = $1`
			if err := w.pool.QueryRow(t.Context(), query, i.CallRequestID).Scan(&counted); err != nil {
				t.Fatal(err)
			}
			if !counted {
				t.Error("restored request is dialing with a look_at in the future = false, want true")
			}
		})
	}
}

func TestReconcile_RestoresWhetherAPersonCreatedALostRequest(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.reconcile()
	ofPerson, ofKey := w.newIntent(), w.newIntent()
	ofPerson.ByPerson, ofKey.To = true, "+14155550100"
	w.publish(ofPerson, ofKey)
	w.moveTo("b")
	w.reconcile()
	for id, want := range map[uuid.UUID]bool{ofPerson.CallRequestID: true, ofKey.CallRequestID: false} {
		var got bool
		const query = `SELECT by_person FROM dial_queue WHERE call_request_id = $1`
		if err := w.pool.QueryRow(t.Context(), query, id).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("by_person = %t, want %t", got, want)
		}
	}
}

// The intents of calls with a fence are already published. So these calls may still be dialed.
func TestReconciled_StaysTrueWhileThePublisherFails(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	r := w.newReconciler(nil)
	if r.Reconciled() {
		t.Error("Reconciled before the first check = true, want false")
	}
	if err := r.checkServer(t.Context()); err != nil {
		t.Fatalf("check = %v", err)
	}
	w.publisher.openCircuit(t.Context(), w.newIntent(), errNotAcknowledged)
	if !r.Reconciled() {
		t.Error("Reconciled while the circuit is open = false, want true")
	}
	if r.MayDial() {
		t.Error("MayDial while the circuit is open = true, want false")
	}
}

// If a check of the database fails or is slow, the database server has not necessarily changed.
// Calls with a fence may still be dialed.
func TestReconciled_StaysTrueIfTheCheckOfTheDatabaseFails(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	r := w.newReconciler(nil)
	if err := r.checkServer(t.Context()); err != nil {
		t.Fatalf("check = %v", err)
	}
	owner := pgtest.Owner(t, w.pool, "dialer")
	rename := func(from, to string) {
		t.Helper()
		if _, err := owner.Exec(t.Context(), `ALTER TABLE `+from+` RENAME TO `+to); err != nil {
			t.Fatal(err)
		}
	}
	rename("reconciled_servers", "renamed")
	if err := r.checkServer(t.Context()); err == nil {
		t.Error("check while the statement fails = nil, want an error")
	}
	if !r.Reconciled() {
		t.Error("Reconciled after a check that failed = false, want true")
	}
	rename("renamed", "reconciled_servers")

	lock, err := owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := lock.Exec(t.Context(), `LOCK TABLE reconciled_servers`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	checked := make(chan error, 1)
	go func() { checked <- r.checkServer(ctx) }()
	testkit.Until(t, "the check waits for the database", func() bool {
		var waits bool
		const query = `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'reconciled_servers'::regclass)`
		if err := w.pool.QueryRow(t.Context(), query).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		return waits
	})
	if !r.Reconciled() {
		t.Error("Reconciled during a slow check = false, want true")
	}
	cancel()
	if err := <-checked; err == nil {
		t.Error("check that was interrupted = nil, want an error")
	}
	if !r.Reconciled() {
		t.Error("Reconciled after a slow check = false, want true")
	}
}

func TestReconcile_RequestsAreClaimedOnlyAfterReconciliation(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.reconcile()
	i := w.newIntent()
	w.enqueue(i)
	w.moveTo("b")
	limit := dialqueue.Limit{Live: 10, PerSecond: 10}
	capacity := store.Capacity{
		Workers: dialqueue.Workers{All: 5, Free: 5}, Trunk: "sim", OfTrunk: limit, Total: limit,
	}
	if _, err := w.store.Claim(t.Context(), capacity, []uuid.UUID{w.workspace}); !errors.Is(err, store.ErrServerChanged) {
		t.Errorf("Claim on another server = %v, want ErrServerChanged", err)
	}
	w.reconcile()
	claimed, err := w.store.Claim(t.Context(), capacity, []uuid.UUID{w.workspace})
	if err != nil {
		t.Errorf("Claim after the reconciliation = %v", err)
	}
	if got := len(claimed.Requests); got != 1 {
		t.Errorf("claimed requests = %d, want 1", got)
	}
}

// The function of OnChange stores legs that the reconciliation reads. So the function must be
// called before the reconciliation.
func TestOnChange_IsCalledBeforeAndAfterAReconciliation(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	r, calls := w.newReconciler(nil), 0
	r.OnChange(func() {
		calls++
		if r.MayDial() {
			t.Errorf("MayDial in call %d = true, want false", calls)
		}
	})
	for _, step := range []struct {
		server string // empty if the database server does not change
		want   int
	}{{want: 0}, {server: "b", want: 2}, {want: 2}, {server: "c", want: 4}} {
		if step.server != "" {
			w.moveTo(step.server)
		}
		if err := r.checkServer(t.Context()); err != nil {
			t.Fatalf("check = %v", err)
		}
		if calls != step.want {
			t.Errorf("calls on server %q = %d, want %d", step.server, calls, step.want)
		}
	}
}

// The topic can have lost intents whose fences the database has lost too.
func TestReconcile_MissingIntentsNeedConfirmation(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		lose func(w *fixture, admin *kadm.Client) error
	}{
		{
			name: "the topic was deleted and created again",
			lose: func(w *fixture, admin *kadm.Client) error {
				if _, err := admin.DeleteTopics(w.Context(), kafka.DialIntents.Name); err != nil {
					return err
				}
				// The topic is created by another client, because the publisher's client has cached the deleted
				// topic.
				client, err := kafka.NewClient(w.cfg, "test", nil)
				if err != nil {
					return err
				}
				defer client.Close()
				return kafka.EnsureTopics(w.Context(), client, []kafka.Topic{kafka.DialIntents})
			},
		},
		{
			name: "retention has deleted intents",
			lose: func(w *fixture, admin *kadm.Client) error {
				ends, err := admin.ListEndOffsets(w.Context(), kafka.DialIntents.Name)
				if err != nil {
					return err
				}
				_, err = admin.DeleteRecords(w.Context(), ends.Offsets())
				return err
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			w.reconcile()
			w.publish(w.newIntent())
			w.moveTo("b")
			if err := tt.lose(w, kadm.NewClient(w.publisher.client.Client)); err != nil {
				t.Fatal(err)
			}
			r := w.newReconciler(nil)
			testkit.NoError(t, func() error { // the client uses the new topic only after some time
				if err := r.checkServer(t.Context()); !errors.Is(err, ErrConfirmationNeeded) {
					return fmt.Errorf("check = %w, want ErrConfirmationNeeded", err)
				}
				return nil
			})
			if r.MayDial() {
				t.Error("MayDial = true, want false")
			}
			if _, err := Accept(t.Context(), w.cfg, w.store); err != nil {
				t.Fatalf("Accept = %v", err)
			}
			if err := r.checkServer(t.Context()); err != nil {
				t.Errorf("check after Accept = %v", err)
			}
			if !r.MayDial() {
				t.Errorf("MayDial after Accept = false: %v", r.Ready())
			}
		})
	}
}

// A record that cannot be decoded can be the intent of a call that rang.
func TestReconcile_UndecodableIntentNeedsConfirmation(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		// spoil changes the record of an intent, so that it cannot be decoded.
		spoil func(rec *kgo.Record)
	}{
		{name: "the value is not a protobuf message", spoil: func(rec *kgo.Record) { rec.Value = []byte{0xff} }},
		{name: "the event has a type that this build does not know", spoil: func(rec *kgo.Record) { rec.Value = nil }},
		{name: "the record has no headers", spoil: func(rec *kgo.Record) { rec.Headers = nil }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			w.reconcile()
			i := w.newIntent()
			w.enqueue(i)
			rec, err := encodeIntended(w.newIntent())
			if err != nil {
				t.Fatal(err)
			}
			tt.spoil(rec)
			if err := w.publisher.client.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
				t.Fatal(err)
			}
			w.publish(i)
			w.moveTo("b")
			r := w.newReconciler(nil)
			for range 2 {
				if err := r.checkServer(t.Context()); !errors.Is(err, ErrConfirmationNeeded) {
					t.Fatalf("check = %v, want ErrConfirmationNeeded", err)
				}
				if r.MayDial() {
					t.Error("MayDial = true, want false")
				}
			}
			if _, err := Accept(t.Context(), w.cfg, w.store); err != nil {
				t.Fatalf("Accept = %v", err)
			}
			if err := r.checkServer(t.Context()); err != nil {
				t.Fatalf("check after Accept = %v", err)
			}
			if !r.MayDial() {
				t.Errorf("MayDial after Accept = false: %v", r.Ready())
			}
			want := outcome{State: "dialing", Call: "fenced", Ending: "lost", Fences: 1}
			if diff := cmp.Diff(want, w.outcome(i)); diff != "" {
				t.Errorf("request differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAdvance_MovesThePositionsToTheEndOfTheTopic(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.reconcile()
	w.publish(w.newIntent(), w.newIntent())
	r := w.newReconciler(nil)
	if err := r.checkServer(t.Context()); err != nil {
		t.Fatalf("check = %v", err)
	}
	bounds, err := kafka.ReadBounds(t.Context(), w.publisher.client, kafka.DialIntents)
	if err != nil {
		t.Fatal(err)
	}
	positions, err := w.store.IntentPositions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[int32]int64(bounds.End), positions); diff != "" {
		t.Errorf("positions differ from the end of the topic (-want +got):\n%s", diff)
	}
}

// The process that claimed a request can have published the intent without having committed the
// fence yet.
func TestAdvance_KeepsThePositionWhileAClaimCanCommitAFence(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.reconcile()
	i := w.newIntent()
	w.enqueue(i)
	w.exec(`UPDATE dial_queue SET claimed_by = $1, look_at = now() + interval '1 minute'`, i.InstanceID)
	state, err := w.store.ServerState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	advance := func() bool {
		t.Helper()
		moved, err := w.store.AdvanceIntents(t.Context(), state.Server, state.TopicID, state.Now, map[int32]int64{0: 7})
		if err != nil {
			t.Fatalf("AdvanceIntents = %v", err)
		}
		return moved
	}
	if advance() {
		t.Error("AdvanceIntents with an open claim = true, want false")
	}
	w.exec(`UPDATE dial_queue SET claimed_by = NULL`)
	if !advance() {
		t.Error("AdvanceIntents without a claim = false, want true")
	}
}

// A request is claimed while the reconciler reads the end of the topic. The intent of this claim
// can be before that end.
func TestAdvance_KeepsThePositionForAClaimMadeWhileOffsetsAreRead(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	w.cfg = kafka.Config{Brokers: cluster.ListenAddrs()}
	if w.publisher, err = NewPublisher(w.cfg, prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.publisher.Close)
	if !w.publisher.findTopic(t.Context()) {
		t.Fatal("the topic was not found")
	}
	w.reconcile()
	before, err := w.store.IntentPositions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := w.newIntent()
	w.enqueue(i)
	w.publish(i)
	cluster.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		_, err = w.pool.Exec(t.Context(), `UPDATE dial_queue SET claimed_by = $1, look_at = now() + interval '1 minute'`,
			i.InstanceID)
		return nil, nil, false
	})
	if err := w.newReconciler(nil).checkServer(t.Context()); err != nil {
		t.Fatalf("check = %v", err)
	}
	if err != nil {
		t.Fatalf("claim = %v", err)
	}
	after, err := w.store.IntentPositions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("positions moved past the intent of a claim (-before +after):\n%s", diff)
	}
}

// The intent for the next trunk can be in the topic before the fence for that trunk commits. So
// the position must not move past this intent.
func TestAdvance_KeepsThePositionWhileASecondTrunkCanBeTried(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		// since is the time from the commit of the fence until the offsets were read. It is negative if
		// the offsets were read first.
		since time.Duration
		call  string
		moves bool
	}{
		"the fence was committed first": {since: time.Second, call: "status = 'fenced'"},
		"the offsets were read first":   {since: -time.Second, call: "status = 'fenced'", moves: true},
		"the phone rings":               {since: time.Second, call: "status = 'ringing'", moves: true},
		"the call ended":                {since: time.Second, call: "status = 'void', ended_at = now()", moves: true},
		"recovery hangs up":             {since: time.Second, call: "ending = 'lost'", moves: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			w.reconcile()
			i := w.newIntent()
			w.publishForTwoTrunks(i, i.InstanceID)
			w.exec(`UPDATE calls SET ` + tt.call)
			state, err := w.store.ServerState(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var since time.Time
			const query = `SELECT fenced_at + $1::interval FROM fences`
			if err := w.pool.QueryRow(t.Context(), query, tt.since).Scan(&since); err != nil {
				t.Fatal(err)
			}
			moved, err := w.store.AdvanceIntents(t.Context(), state.Server, state.TopicID, since, map[int32]int64{0: 7})
			if err != nil {
				t.Fatalf("AdvanceIntents = %v", err)
			}
			if moved != tt.moves {
				t.Errorf("AdvanceIntents = %t, want %t", moved, tt.moves)
			}
		})
	}
}

// Under load, there are always newer claims. So the positions must not wait for claims that were
// made after the end of the topic was read.
func TestAdvance_IgnoresClaimsMadeAfterTheOffsetsWereRead(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.reconcile()
	r, first, second := w.newReconciler(nil), w.newIntent(), w.newIntent()
	claim := func(i store.Intent) {
		t.Helper()
		w.exec(`UPDATE dial_queue SET claimed_by = $1, look_at = now() + interval '1 minute'
			WHERE call_request_id = $2`, i.InstanceID, i.CallRequestID)
	}
	advance := func() {
		t.Helper()
		r.advancedAt = time.Time{} // as if the previous advance was long ago
		if err := r.checkServer(t.Context()); err != nil {
			t.Fatalf("check = %v", err)
		}
	}
	w.enqueue(first)
	w.enqueue(second)
	claim(first)
	w.publish(first)
	want, err := kafka.ReadBounds(t.Context(), w.publisher.client, kafka.DialIntents)
	if err != nil {
		t.Fatal(err)
	}
	advance()
	claim(second)
	w.publish(second)
	w.exec(`UPDATE dial_queue SET claimed_by = NULL WHERE call_request_id = $1`, first.CallRequestID)
	advance()
	positions, err := w.store.IntentPositions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[int32]int64(want.End), positions); diff != "" {
		t.Errorf("positions differ from the first end of the topic (-want +got):\n%s", diff)
	}
}

// A topic that has lost records can end before the stored position. If the position did not move
// back, the next reconciliation would return ErrConfirmationNeeded.
func TestAdvance_MovesThePositionBackToTheEndOfTheTopic(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.reconcile()
	state, err := w.store.ServerState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []int64{7, 5} {
		moved, err := w.store.AdvanceIntents(t.Context(), state.Server, state.TopicID, state.Now, map[int32]int64{0: end})
		if err != nil {
			t.Fatalf("AdvanceIntents = %v", err)
		}
		if !moved {
			t.Errorf("AdvanceIntents to %d = false, want true", end)
		}
	}
	positions, err := w.store.IntentPositions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := positions[0], int64(5); got != want {
		t.Errorf("position = %d, want %d", got, want)
	}
}
