package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

// While the database is not reachable, a batch can collect two results of one delivery. Only the
// result of the current attempt may count, whether it is the first or the last of the batch.
func TestComplete_OnlyTheResultOfTheCurrentAttemptCounts(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	sub := r.subscribe(ws, "call.completed")
	done := deliveries.Response{Code: 200, At: time.Now(), Duration: time.Millisecond}
	for name, results := range map[string]func(id uuid.UUID) []deliveries.Result{
		"result of an older attempt after the current result": func(id uuid.UUID) []deliveries.Result {
			return []deliveries.Result{
				{DeliveryID: id, Attempt: 2, Outcome: deliveries.OutcomeDelivered, Response: done},
				{DeliveryID: id, Attempt: 1, Outcome: deliveries.OutcomeRetry, Response: deliveries.Response{Failure: deliveries.Timeout, At: time.Now()}},
			}
		},
		"result of an older attempt before the current result": func(id uuid.UUID) []deliveries.Result {
			return []deliveries.Result{
				{DeliveryID: id, Attempt: 1, Outcome: deliveries.OutcomeFailed, Response: deliveries.Response{Failure: deliveries.Timeout, At: time.Now()}},
				{DeliveryID: id, Attempt: 2, Outcome: deliveries.OutcomeDelivered, Response: done},
			}
		},
		"attempt reported as lost after its result": func(id uuid.UUID) []deliveries.Result {
			return []deliveries.Result{
				{DeliveryID: id, Attempt: 2, Outcome: deliveries.OutcomeDelivered, Response: done},
				{DeliveryID: id, Attempt: 2, Outcome: deliveries.OutcomeFailed, Response: deliveries.Response{Failure: deliveries.Interrupted, At: time.Now()}},
			}
		},
		"attempt reported as lost before its result": func(id uuid.UUID) []deliveries.Result {
			return []deliveries.Result{
				{DeliveryID: id, Attempt: 2, Outcome: deliveries.OutcomeFailed, Response: deliveries.Response{Failure: deliveries.Interrupted, At: time.Now()}},
				{DeliveryID: id, Attempt: 2, Outcome: deliveries.OutcomeDelivered, Response: done},
			}
		},
	} {
		ev := event(ws, uuid.New(), 1, "call.completed")
		r.ingest(nil, ev)
		id := deliveries.ID(sub, ev.ID, ev.CreatedAt)
		if _, err := r.pool.Exec(t.Context(), `UPDATE delivery_queue SET attempt = 2 WHERE delivery_id = $1`, id); err != nil {
			t.Fatal(err)
		}
		settled, err := r.store.Complete(t.Context(), results(id))
		if err != nil {
			t.Fatalf("%s: Complete: %v", name, err)
		}
		wantEqual(t, name+": settled results", settled.Settled, 1)
		wantEqual(t, name+": status", r.statusOf(ws, sub, ev.ID), deliveries.Delivered)
	}
	got, err := r.store.Subscription(t.Context(), ws, sub)
	if err != nil {
		t.Fatalf("Subscription: %v", err)
	}
	wantEqual(t, "consecutive failures", got.ConsecutiveFailures, 0)
	wantEqual(t, "status", got.Status, subscriptions.Active)
}

// A batch can contain the same failure twice. A batch can also be stored again because the response
// to its COMMIT was lost. In both cases, the failure must be counted once.
func TestComplete_CountsARepeatedFailureOnce(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	sub := r.subscribe(ws, "call.completed")
	before, after := event(ws, uuid.New(), 1, "call.completed"), event(ws, uuid.New(), 1, "call.completed")
	r.ingest(nil, before, after)
	if _, err := r.pool.Exec(t.Context(), `UPDATE delivery_queue SET attempt = 1`); err != nil {
		t.Fatal(err)
	}
	failed := func(ev deliveries.Event) deliveries.Result {
		return deliveries.Result{
			DeliveryID: deliveries.ID(sub, ev.ID, ev.CreatedAt),
			Attempt:    1,
			Outcome:    deliveries.OutcomeRetry,
			Delay:      time.Minute,
			Response:   deliveries.Response{Code: 500, Failure: deliveries.BadStatus, At: time.Now()},
		}
	}
	want := func(what string, done store.Completed, err error, settled, failures int) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: Complete: %v", what, err)
		}
		wantEqual(t, what+": settled results", done.Settled, settled)
		got, err := r.store.Subscription(t.Context(), ws, sub)
		if err != nil {
			t.Fatalf("%s: Subscription: %v", what, err)
		}
		wantEqual(t, what+": consecutive failures", int(got.ConsecutiveFailures), failures)
	}
	one, other := failed(before), failed(after)
	done, err := r.store.Complete(t.Context(), []deliveries.Result{one, one})
	want("twice in a batch", done, err, 1, 1)
	done, err = r.store.CompleteAgain(t.Context(), []deliveries.Result{one})
	want("again", done, err, 0, 1)
	done, err = r.store.CompleteAgain(t.Context(), []deliveries.Result{one, other})
	want("again, with one that had not been written", done, err, 1, 2)
}

// Complete must wait until a concurrent erasure of the call commits.
func TestComplete_StoresNoWebhookResponseDuringAnErasureOfTheCall(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	sub, ev := r.subscribe(ws, "call.completed"), event(ws, uuid.New(), 1, "call.completed")
	r.ingest(nil, ev)
	work := r.claimAll(sub)
	if len(work) != 1 {
		t.Fatalf("claimed deliveries = %d, want 1", len(work))
	}
	erasing, err := r.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = erasing.Rollback(context.WithoutCancel(t.Context())) }()
	erasure := store.Erasure{ID: uuid.New(), WorkspaceID: ws, CallID: *ev.ObjectID, EventIDs: []uuid.UUID{ev.ID}}
	if err := r.store.EraseCall(t.Context(), erasing, erasure); err != nil {
		t.Fatalf("EraseCall: %v", err)
	}
	completed := make(chan error, 1)
	go func() {
		_, err := r.store.Complete(context.WithoutCancel(t.Context()), []deliveries.Result{{
			DeliveryID: work[0].DeliveryID, Attempt: 1, Outcome: deliveries.OutcomeDelivered,
			Response: deliveries.Response{Code: 200, At: time.Now(), Excerpt: "thank you, Xylophone"},
		}})
		completed <- err
	}()
	r.awaitLocked()
	if err := erasing.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-completed; err != nil {
		t.Fatalf("Complete: %v", err)
	}
	wantEqual(t, "stored attempts", r.count(`SELECT count(*) FROM attempts`), 1)
	wantEqual(t, "stored responses", r.count(`SELECT count(*) FROM attempts WHERE excerpt IS NOT NULL`), 0)
}

// Disable waits for the lock of the subscription, which another transaction holds to ingest an
// event. During this wait, a success is stored.
func TestDisable_SubscriptionStaysActiveIfASuccessIsStoredFirst(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	sub, ev := r.subscribe(ws, "call.completed"), event(ws, uuid.New(), 1, "call.completed")
	r.ingest(nil, ev)
	for _, sql := range []string{
		`UPDATE delivery_queue SET attempt = 1`,
		`UPDATE subscription_health SET consecutive_failures = 20, failures = 20, exhausted = 3, failing_since = now() - interval '1 hour'`,
	} {
		if _, err := r.pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	ingesting, err := pgtest.Owner(t, r.pool, schema).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ingesting.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := ingesting.Exec(t.Context(), `SELECT FROM subscriptions WHERE id = $1 FOR SHARE`, sub); err != nil {
		t.Fatal(err)
	}
	type judgement struct {
		disabled bool
		err      error
	}
	judged := make(chan judgement, 1)
	go func() {
		rule := subscriptions.FailureRule{Failures: 20, Duration: time.Minute, Exhausted: 3}
		_, disabled, err := r.store.Disable(context.WithoutCancel(t.Context()), sub, rule)
		judged <- judgement{disabled, err}
	}()
	r.awaitLocked()
	done, err := r.store.Complete(
		t.Context(),
		[]deliveries.Result{
			{
				DeliveryID: deliveries.ID(sub, ev.ID, ev.CreatedAt),
				Attempt:    1,
				Outcome:    deliveries.OutcomeDelivered,
				Response:   deliveries.Response{Code: 200, At: time.Now()},
			},
		},
	)
	if err != nil {
		t.Fatalf("Complete: %v", err)
	}
	wantEqual(t, "settled results", done.Settled, 1)
	if err := ingesting.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := <-judged
	if got.err != nil {
		t.Fatalf("Disable: %v", got.err)
	}
	wantEqual(t, "subscription is disabled after a success", got.disabled, false)
	first, err := r.store.MarkWarned(t.Context(), sub)
	if err != nil {
		t.Fatalf("MarkWarned: %v", err)
	}
	wantEqual(t, "a healthy subscription is warned", first, false)
}

func (r *fixture) awaitLocked() {
	r.t.Helper()
	const locked = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
	testkit.Until(r.t, "a statement waits for a lock", func() bool { return r.count(locked) > 0 })
}
