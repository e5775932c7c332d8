package dispatch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

func TestSuspension_DeliveriesWaitUntilItEnds(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	recv := newReceiver(t, nil)
	id, _ := r.subscribe(recv.URL)
	pausedID, _ := r.subscribe(recv.URL)
	set := func(version int64, suspended bool) {
		t.Helper()
		workspace := store.Workspace{ID: r.workspace, Version: version, Suspended: suspended, Webhooks: true}
		err := pg.InTx(t.Context(), r.pool, func(tx pgx.Tx) error {
			_, err := r.store.SetWorkspace(t.Context(), tx, workspace)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	early, late := r.event(uuid.New(), 1, "call.completed"), r.event(uuid.New(), 1, "call.completed")
	r.ingest(early)
	r.setStatus(pausedID, subscriptions.Paused)
	set(2, true)
	r.ingest(late)
	for _, ev := range []deliveries.Event{early, late} {
		if got := r.delivery(id, ev.ID).Status; got != deliveries.Held {
			t.Errorf("status of a delivery in a suspended workspace = %s, want held", got)
		}
	}
	wantEqual(t, "deliveries claimed of a suspended workspace", len(r.claim(claimFirst(id))), 0)
	set(3, false)
	d := r.dispatch(config())
	r.awaitStatus(id, late.ID, deliveries.Delivered)
	r.awaitStatus(id, early.ID, deliveries.Delivered)
	if got := r.delivery(pausedID, early.ID).Status; got != deliveries.Held {
		t.Errorf("status of a delivery of a paused subscription after the suspension = %s, want held", got)
	}
	r.setStatus(pausedID, subscriptions.Active)
	d.Wake()
	r.awaitStatus(pausedID, early.ID, deliveries.Delivered)
}

func TestFailure_DisablesTheSubscriptionUntilItIsResumed(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	recv := newReceiver(t, always(500))
	id, _ := r.subscribe(recv.URL)
	cfg := config()
	cfg.RetryDelays = []time.Duration{20 * time.Millisecond, 20 * time.Millisecond}
	cfg.Rule = subscriptions.FailureRule{Failures: 9, Duration: 50 * time.Millisecond, Exhausted: 3}
	d := r.dispatch(cfg)
	for range 12 {
		r.ingest(r.event(uuid.New(), 1, "call.completed"))
	}
	d.Wake()
	testkit.NoError(t, func() error {
		if sub := r.subscription(id); sub.Status != subscriptions.Failed {
			return fmt.Errorf("status = %s after %d failures", sub.Status, sub.ConsecutiveFailures)
		}
		return nil
	})
	sub := r.subscription(id)
	wantEqual(t, "FailedAt is set", sub.FailedAt != nil, true)
	wantEqual(t, "FailedReason is set", sub.FailedReason != nil, true)
	lastError := "http_status 500"
	if diff := cmp.Diff(&lastError, sub.LastError); diff != "" {
		t.Errorf("last error (-want +got):\n%s", diff)
	}
	ev := r.event(uuid.New(), 1, "call.completed")
	r.ingest(ev)
	if got := r.delivery(id, ev.ID).Status; got != deliveries.Skipped {
		t.Errorf("status of a delivery to a failed subscription = %s, want skipped", got)
	}
	recv.respondWith(nil)
	sub = r.setStatus(id, subscriptions.Active)
	wantEqual(t, "consecutive failures after the resumption", sub.ConsecutiveFailures, 0)
	wantEqual(t, "FailedAt after the resumption", sub.FailedAt, nil)
	wantEqual(t, "FailedReason after the resumption", sub.FailedReason, nil)
	wantEqual(t, "WarnedAt after the resumption", sub.WarnedAt, nil)
	wantEqual(t, "LastError after the resumption", sub.LastError, nil)
	d.Wake()
	testkit.NoError(t, func() error {
		if n := r.count(`SELECT count(*) FROM deliveries WHERE status = 'queued'`); n != 0 {
			return fmt.Errorf("queued deliveries after the resumption = %d, want 0", n)
		}
		return nil
	})
}

func TestFailure_TestDeliveriesAreCountedButDoNotDisableTheSubscription(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	recv := newReceiver(t, always(500))
	id, _ := r.subscribe(recv.URL)
	cfg := config()
	cfg.RetryDelays = []time.Duration{time.Millisecond}
	cfg.Rule = subscriptions.FailureRule{Failures: 2, Duration: 0, Exhausted: 1}
	d := r.dispatch(cfg)
	for range 4 {
		ev, err := deliveries.NewTest(uuid.Must(uuid.NewV7()), r.workspace, id, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := r.store.EnqueueTest(t.Context(), id, ev); err != nil {
			t.Fatal(err)
		}
		d.Wake()
		r.awaitStatus(id, ev.ID, deliveries.Failed)
	}
	sub := r.subscription(id)
	wantEqual(t, "status after four failed tests", sub.Status, subscriptions.Active)
	wantEqual(t, "consecutive failures after four failed tests", sub.ConsecutiveFailures, 8)
	wantEqual(t, "LastFailureAt is set", sub.LastFailureAt != nil, true)
	recv.respondWith(nil)
	ev, _ := deliveries.NewTest(uuid.Must(uuid.NewV7()), r.workspace, id, time.Now())
	if err := r.store.EnqueueTest(t.Context(), id, ev); err != nil {
		t.Fatal(err)
	}
	d.Wake()
	r.awaitStatus(id, ev.ID, deliveries.Delivered)
	sub = r.subscription(id)
	wantEqual(t, "consecutive failures after a test that succeeded", sub.ConsecutiveFailures, 0)
	wantEqual(t, "LastSuccessAt is set", sub.LastSuccessAt != nil, true)
}

func TestFailure_InternalFailuresAreNotCountedForTheEndpoint(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	sink := newReceiver(t, nil)
	id, _ := r.subscribe(sink.URL)
	r.exec(`UPDATE subscriptions SET secret_sealed = 'a key that was taken away' WHERE id = $1`, id)
	d := r.dispatch(config())
	ev := r.event(uuid.New(), 1, "call.completed")
	r.ingest(ev)
	d.Wake()
	r.awaitStatus(id, ev.ID, deliveries.Failed)
	wantEqual(t, "requests", len(sink.all()), 0)
	sub := r.subscription(id)
	wantEqual(t, "consecutive failures", sub.ConsecutiveFailures, 0)
	wantEqual(t, "LastFailureAt", sub.LastFailureAt, nil)
}
