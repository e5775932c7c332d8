package retention_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

func (r *fixture) withSubscription(workspace uuid.UUID) *fixture {
	r.t.Helper()
	other := *r
	other.workspace, other.sub = workspace, uuid.Must(uuid.NewV7())
	if err := r.store.Create(r.t.Context(), subscriptions.Subscription{
		ID: other.sub, WorkspaceID: workspace, Name: "b", URL: "https://example.com/b", Events: []openapi.EventType{"call.completed"},
	}, "whsec_b"); err != nil {
		r.t.Fatal(err)
	}
	return &other
}

// One workspace has a retention period of three days. Deliveries that have not ended are kept. An
// event is deleted together with its last delivery.
func TestDeleteExpired_DeletesAfterTheRetentionPeriodOfTheWorkspace(t *testing.T) {
	t.Parallel()
	first := newFixture(t)
	now := noon()
	first.rotate(now)
	second, other := first.withSubscription(first.workspace), first.withSubscription(uuid.Must(uuid.NewV7()))
	for n := range 7 {
		first.ingest(now.Add(-time.Duration(n) * day))
		other.ingest(now.Add(-time.Duration(n) * day))
	}
	first.complete(first.claim(), deliveries.OutcomeDelivered, now)
	other.complete(other.claim(), deliveries.OutcomeDelivered, now)
	if err := pg.InTx(t.Context(), first.pool, func(tx pgx.Tx) error {
		kept := store.Workspace{ID: first.workspace, Version: 5, Webhooks: true, KeepDays: 3}
		if _, err := first.store.SetWorkspace(t.Context(), tx, kept); err != nil {
			return err
		}
		old := store.Workspace{ID: first.workspace, Version: 4, Webhooks: true, KeepDays: 1}
		_, err := first.store.SetWorkspace(t.Context(), tx, old)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	forget := func(at time.Time, deliveries, events int) {
		t.Helper()
		for range 2 { // the second call must delete nothing more
			if err := first.job.DeleteExpired(t.Context(), at); err != nil {
				t.Fatal(err)
			}
		}
		got := [...]int{
			first.count("SELECT count(*) FROM deliveries WHERE workspace_id = $1", first.workspace),
			first.count("SELECT count(*) FROM events WHERE workspace_id = $1", first.workspace),
			first.count("SELECT count(*) FROM deliveries WHERE workspace_id = $1", other.workspace),
			first.count("SELECT count(*) FROM attempts a WHERE NOT EXISTS (SELECT FROM deliveries d WHERE d.id = a.delivery_id)"),
		}
		if got != [...]int{deliveries, events, 7, 0} {
			t.Errorf("at %s: deliveries, events, deliveries of the other workspace, attempts without delivery = %v, want %d, %d, 7, 0", at, got, deliveries, events)
		}
	}
	forget(now, 4+7, 7) // the bodies stay, because queued deliveries of the second subscription need them
	second.complete(second.claim(), deliveries.OutcomeDelivered, now)
	forget(now, 4+4, 4)
	forget(now.Add(10*day), 0, 0)
}
