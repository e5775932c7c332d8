package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

func (r *fixture) setWorkspace(w store.Workspace) (changed bool) {
	r.t.Helper()
	err := pg.InTx(r.t.Context(), r.pool, func(tx pgx.Tx) (err error) {
		changed, err = r.store.SetWorkspace(r.t.Context(), tx, w)
		return err
	})
	if err != nil {
		r.t.Fatalf("SetWorkspace(%+v): %v", w, err)
	}
	return changed
}

func (r *fixture) claimAll(sub uuid.UUID) []deliveries.Work {
	r.t.Helper()
	quota := []store.Quota{{SubscriptionID: sub, Total: 100, Retries: 100}}
	return mustClaim(r.t, r.store, store.Claim{Quotas: quota, Lease: time.Minute, Attempts: 5})
}

func (r *fixture) statusOf(workspace, sub, event uuid.UUID) deliveries.Status {
	r.t.Helper()
	var id uuid.UUID
	const idOf = `SELECT id FROM deliveries WHERE subscription_id = $1 AND event_id = $2`
	if err := r.pool.QueryRow(r.t.Context(), idOf, sub, event).Scan(&id); err != nil {
		r.t.Fatalf("find delivery of event %s: %v", event, err)
	}
	row, err := r.store.Delivery(r.t.Context(), workspace, sub, id)
	if err != nil {
		r.t.Fatalf("read delivery of event %s: %v", event, err)
	}
	return row.Status
}

func TestSetWorkspace_DeliveriesWaitWhileTheWebhooksFeatureIsOff(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	sub, paused := r.subscribe(ws, "call.completed"), r.subscribe(ws, "call.completed")
	r.setWorkspace(store.Workspace{ID: ws, Version: 1, Webhooks: true})
	before := event(ws, uuid.New(), 1, "call.completed")
	r.ingest(nil, before)
	if err := r.setStatus(ws, paused, subscriptions.Paused); err != nil {
		t.Fatal(err)
	}

	r.setWorkspace(store.Workspace{ID: ws, Version: 2, Webhooks: false})
	if got := r.statusOf(ws, sub, before.ID); got != deliveries.Held {
		t.Errorf("queued delivery after the feature was lost = %q, want held", got)
	}
	during := event(ws, uuid.New(), 1, "call.completed")
	r.ingest(nil, during)
	if got := r.statusOf(ws, sub, during.ID); got != deliveries.Skipped {
		t.Errorf("delivery of an event ingested without the feature = %q, want skipped", got)
	}
	replayed, err := r.store.Replay(t.Context(), ws, sub, store.Replay{Status: deliveries.Skipped, Limit: 10})
	if err != nil {
		t.Fatalf("Replay without the feature: %v", err)
	}
	if replayed.Count != 1 {
		t.Errorf("replayed = %d, want 1", replayed.Count)
	}
	if got := r.statusOf(ws, sub, during.ID); got != deliveries.Held {
		t.Errorf("delivery replayed without the feature = %q, want held", got)
	}
	if work := r.claimAll(sub); len(work) != 0 {
		t.Errorf("deliveries claimed without the feature = %d, want 0", len(work))
	}

	r.setWorkspace(store.Workspace{ID: ws, Version: 3, Webhooks: true})
	if work := r.claimAll(sub); len(work) != 2 {
		t.Errorf("deliveries claimed after the feature returned = %d, want 2", len(work))
	}
	if got := r.statusOf(ws, paused, before.ID); got != deliveries.Held {
		t.Errorf("delivery of a paused subscription after the feature returned = %q, want held", got)
	}
}

func TestSetWorkspace_DeliveryStatusDependsOnSuspensionAndFeature(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name                string
		suspended, webhooks bool
		wantQueued          deliveries.Status // the status of a delivery that was queued before the change
		// the status of the delivery of an event that is ingested after the change
		wantNew deliveries.Status
	}{
		{name: "active workspace with the webhooks feature",
			webhooks: true, wantQueued: deliveries.Queued, wantNew: deliveries.Queued},
		{name: "suspended workspace with the webhooks feature",
			suspended: true, webhooks: true, wantQueued: deliveries.Held, wantNew: deliveries.Held},
		{name: "active workspace without the webhooks feature", wantQueued: deliveries.Held, wantNew: deliveries.Skipped},
		{name: "suspended workspace without the webhooks feature",
			suspended: true, wantQueued: deliveries.Held, wantNew: deliveries.Skipped},
	}
	r := newFixture(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ws := uuid.New()
			sub := r.subscribe(ws, "call.completed")
			queued, fresh := event(ws, uuid.New(), 1, "call.completed"), event(ws, uuid.New(), 1, "call.completed")
			r.ingest(nil, queued)
			r.setWorkspace(store.Workspace{ID: ws, Version: 1, Suspended: tt.suspended, Webhooks: tt.webhooks})
			if got := r.statusOf(ws, sub, queued.ID); got != tt.wantQueued {
				t.Errorf("queued delivery = %q, want %q", got, tt.wantQueued)
			}
			r.ingest(nil, fresh)
			if got := r.statusOf(ws, sub, fresh.ID); got != tt.wantNew {
				t.Errorf("delivery of a new event = %q, want %q", got, tt.wantNew)
			}
		})
	}
}

func TestSetWorkspace_IgnoresOldVersions(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	if changed := r.setWorkspace(store.Workspace{ID: ws, Version: 2, Suspended: true, KeepDays: 3}); !changed {
		t.Error("changed = false for the first version, want true")
	}
	for _, version := range []int64{1, 2} {
		if changed := r.setWorkspace(store.Workspace{ID: ws, Version: version, Webhooks: true}); changed {
			t.Errorf("changed = true for version %d after version 2, want false", version)
		}
	}
	const stored = `
		SELECT count(*) FROM workspaces WHERE version = 2 AND suspended AND NOT webhooks_enabled AND keep_days = 3`
	if got := r.count(stored); got != 1 {
		t.Errorf("workspaces as in version 2 = %d, want 1", got)
	}
}

// A consumer's batch can contain an event that ApplySetting has already stored. Such an event must
// not delay the next change of the workspace until the batch commits.
func TestSetWorkspace_RepeatedVersionLocksNoRow(t *testing.T) {
	t.Parallel()
	r, stored := newFixture(t), store.Workspace{ID: uuid.New(), Version: 1, Webhooks: true}
	r.setWorkspace(stored)
	batch, err := r.pool.Begin(t.Context())
	if err != nil {
		t.Fatalf("begin batch: %v", err)
	}
	t.Cleanup(func() { _ = batch.Rollback(context.Background()) })
	if _, err := r.store.SetWorkspace(t.Context(), batch, stored); err != nil {
		t.Fatalf("store the same version in the batch: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := r.store.ApplyWorkspace(ctx, store.Workspace{ID: stored.ID, Version: 2, Webhooks: true}); err != nil {
		t.Errorf("apply version 2 before the batch commits: %v", err)
	}
	// If the update to version 2 had waited for the batch, Postgres would have ended the idle
	// session of the batch, and this commit would fail.
	if err := batch.Commit(t.Context()); err != nil {
		t.Errorf("commit the batch: %v", err)
	}
}
