package retention_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// onDelete runs a PL/pgSQL statement before the row of a subscription is deleted.
func (r *fixture) onDelete(sub uuid.UUID, statement string) {
	r.t.Helper()
	owner := pgtest.Owner(r.t, r.pool, schema)
	for _, sql := range []string{
		"CREATE FUNCTION on_delete() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN " + statement + "; RETURN OLD; END $$",
		fmt.Sprintf(`CREATE TRIGGER on_delete BEFORE DELETE ON subscriptions FOR EACH ROW WHEN (OLD.id = '%s')
			EXECUTE FUNCTION on_delete()`, sub),
	} {
		if _, err := owner.Exec(r.t.Context(), sql); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *fixture) markDeleted() {
	r.t.Helper()
	if err := r.store.Delete(r.t.Context(), r.workspace, r.sub); err != nil {
		r.t.Fatal(err)
	}
}

func TestDeleteSubscriptions_FailedDeletionDoesNotPreventOtherDeletions(t *testing.T) {
	t.Parallel()
	first := newFixture(t)
	second := first.withSubscription(first.workspace)
	first.markDeleted()
	second.markDeleted()
	first.onDelete(first.sub, "RAISE EXCEPTION 'not now'")
	if err := first.job.DeleteSubscriptions(t.Context(), 10); err == nil {
		t.Error("DeleteSubscriptions = nil, want an error")
	}
	const stored = "SELECT count(*) FROM subscriptions WHERE id = $1"
	if got := first.count(stored, first.sub); got != 1 {
		t.Errorf("stored rows of the failed deletion = %d, want 1", got)
	}
	if got := second.count(stored, second.sub); got != 0 {
		t.Errorf("stored rows of the other subscription = %d, want 0", got)
	}
}

func TestRun_DeletesErasedBodiesWhileASubscriptionIsDeleted(t *testing.T) {
	t.Parallel()
	deleted := newFixture(t)
	now := time.Now()
	deleted.rotate(now)
	active := deleted.withSubscription(deleted.workspace)
	deleted.markDeleted()
	event := active.ingest(now)
	call := active.callOf(event)
	if err := pg.InTx(t.Context(), active.pool, func(tx pgx.Tx) error {
		return active.store.EraseCall(t.Context(), tx, store.Erasure{
			ID: uuid.New(), WorkspaceID: active.workspace, CallID: call, EventIDs: []uuid.UUID{event},
		})
	}); err != nil {
		t.Fatal(err)
	}
	active.complete(active.claim(), deliveries.OutcomeDelivered, now)
	deleted.onDelete(deleted.sub, "PERFORM pg_sleep(3600)")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- deleted.job.Run(ctx) }()
	testkit.Until(t, "the deletion runs", func() bool {
		return deleted.count(`SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event = 'PgSleep' AND query LIKE 'DELETE FROM subscriptions%'`) == 1
	})
	testkit.Until(t, "the body of the erased event is deleted", func() bool {
		return active.count(`SELECT count(*) FROM events WHERE id = $1 AND body <> ''`, event) == 0
	})
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
}

func (r *fixture) callOf(event uuid.UUID) (call uuid.UUID) {
	r.t.Helper()
	const callOf = "SELECT call_id FROM deliveries WHERE event_id = $1"
	if err := r.pool.QueryRow(r.t.Context(), callOf, event).Scan(&call); err != nil {
		r.t.Fatal(err)
	}
	return call
}
