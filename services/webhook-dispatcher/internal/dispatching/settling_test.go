package dispatching_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
	"ringfence.dev/services/webhook-dispatcher/internal/subscription"
)

// A result that waits until its lease has passed is sent again: what is not settled must not pile up behind a slow database.
func TestSettle_ASlowDatabaseSlowsTheClaims(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	hook := newReceiver(t, nil)
	sub, _ := r.subscribe(hook.URL)
	const events = 2000
	all := make([]delivery.Event, events)
	for i := range all {
		all[i] = r.event(uuid.New(), 1, "call.completed")
	}
	r.ingest(all...)

	tx, err := r.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM webhook_health WHERE subscription_id = $1 FOR UPDATE", sub); err != nil {
		t.Fatal(err)
	}
	cfg := config()
	cfg.Lease = 2 * time.Second
	r.dispatch(cfg)
	eventually(t, func() error {
		if n := r.count("SELECT count(*) FROM webhook_queue WHERE attempt > 0 AND due_at <= now()"); n < 300 {
			return fmt.Errorf("%d leases have passed", n)
		}
		return nil
	})
	// One batch is being written, one waits in line, and a window is open.
	if n := len(hook.all()); n > 2*256+64 {
		t.Errorf("%d requests were made of which none is settled, want 576 at most", n)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if n := r.count("SELECT count(*) FROM webhook_queue"); n > 0 {
			return fmt.Errorf("%d deliveries are open", n)
		}
		return nil
	})
}

// To switch a subscription off takes as long as holding what it has queued, or as somebody else holds the row: the others' results are
// written meanwhile.
func TestSettle_SwitchingOneOffDelaysNobodyElse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	bad, good := newReceiver(t, always(500)), newReceiver(t, nil)
	sick, _ := r.subscribe(bad.URL, "call.failed")
	well, _ := r.subscribe(good.URL, "call.completed")
	r.ingest(r.event(uuid.New(), 1, "call.failed"))
	tx, err := r.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "SELECT FROM webhook_subscription WHERE id = $1 FOR NO KEY UPDATE", sick); err != nil {
		t.Fatal(err)
	}
	cfg := config()
	cfg.Rule = subscription.FailureRule{Failures: 1}
	d := r.dispatch(cfg)
	bad.await(t, 1)
	eventually(t, func() error {
		if r.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 0 {
			return fmt.Errorf("nobody switches the endpoint off")
		}
		return nil
	})
	ev, begun := r.event(uuid.New(), 1, "call.completed"), time.Now()
	r.ingest(ev)
	d.Wake()
	r.awaitStatus(well, ev.ID, delivery.Delivered)
	if took := time.Since(begun); took > 10*time.Second { // a statement that waits is ended after 15 s
		t.Errorf("another's delivery took %s", took)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if sub := r.subscription(sick); sub.Status != subscription.Failed {
			return fmt.Errorf("the failing endpoint is %s", sub.Status)
		}
		return nil
	})
}

// A call's next event may become due while the one before is being written: it is too late for the claim that its arrival called for.
func TestSettle_LooksForWhatBecameDueMeanwhile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	hook := newReceiver(t, nil)
	sub, _ := r.subscribe(hook.URL)
	d := r.dispatch(blind())
	tx, err := r.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "SELECT FROM webhook_health WHERE subscription_id = $1 FOR UPDATE", sub); err != nil {
		t.Fatal(err)
	}
	call := uuid.New()
	r.through(d, r.event(call, 1, "call.ringing"))
	hook.await(t, 1)
	eventually(t, func() error {
		if r.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 0 {
			return fmt.Errorf("nobody writes the result")
		}
		return nil
	})
	r.through(d, r.event(call, 2, "call.completed"))
	eventually(t, func() error {
		if d.claims(t) == 0 {
			return fmt.Errorf("no claim was made in vain")
		}
		return nil
	})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	hook.await(t, 2)
}

// claims is how many claims were made.
func (d running) claims(t *testing.T) (n uint64) {
	t.Helper()
	families, err := d.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "webhook_claim_seconds" {
			n += family.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	return n
}
