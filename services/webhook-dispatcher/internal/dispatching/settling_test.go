package dispatching_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
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
