package store_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

func repeatUntil(ctx context.Context, t *testing.T, action func() error) {
	t.Helper()
	for ctx.Err() == nil {
		var refused *pgconn.PgError
		if err := action(); errors.As(err, &refused) && refused.Code == "40P01" {
			t.Error(err)
		}
	}
}

// The test reads the number of deadlocks from the statistics of Postgres, because a deadlocked
// transaction can be retried without an error.
func TestLocks_ConcurrentTransactionsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	settings := r.pool.Config()
	settings.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	st := store.New(pool, box(t))
	subs := make([]uuid.UUID, 4)
	for i := range subs {
		subs[i] = r.subscribe(ws, "call.ringing", "call.completed", failing, failed)
	}
	const batches = 100
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	repeat := func(action func() error) func() {
		return func() { repeatUntil(ctx, t, action) }
	}
	ingest := repeat(func() error {
		var events []deliveries.Event
		for range 10 {
			call := uuid.New()
			events = append(events, event(ws, call, 1, "call.ringing"), event(ws, call, 2, "call.completed"))
		}
		return pg.InPipeline(ctx, pool, func(tx *pg.Pipeline) error {
			_, err := st.Ingest(ctx, tx, events...)
			return err
		})
	})
	var stored atomic.Int64
	work := repeat(func() error {
		claim := store.Claim{Lease: time.Minute, Attempts: 5}
		for _, sub := range subs {
			claim.Quotas = append(claim.Quotas, store.Quota{SubscriptionID: sub, Total: 16, Retries: 8})
		}
		claimed, err := st.ClaimDue(ctx, claim)
		if err != nil || len(claimed.Work) == 0 {
			return err
		}
		results := make([]deliveries.Result, len(claimed.Work))
		for i, w := range claimed.Work {
			results[i] = deliveries.Result{
				DeliveryID: w.DeliveryID, Attempt: w.Attempt, Replay: w.Replay, Outcome: deliveries.OutcomeFailed,
				Response: deliveries.Response{Code: 500, Failure: deliveries.BadStatus, At: time.Now()},
			}
			if rand.IntN(3) == 0 {
				results[i].Outcome = deliveries.OutcomeRetry
			}
		}
		rand.Shuffle(len(results), func(i, j int) { results[i], results[j] = results[j], results[i] })
		if _, err = st.Complete(ctx, results); err == nil && stored.Add(1) == batches {
			stop()
		}
		return err
	})
	change := repeat(func() error {
		sub := subs[rand.IntN(len(subs))]
		status := []subscriptions.Status{subscriptions.Paused, subscriptions.Active}[rand.IntN(2)]
		_, err := st.Change(ctx, ws, sub, store.Change{Status: &status})
		if err == nil {
			_, _, err = st.Disable(ctx, sub, subscriptions.FailureRule{})
		}
		return err
	})
	replay := repeat(func() error {
		_, err := st.Replay(ctx, ws, subs[rand.IntN(len(subs))], store.Replay{Status: deliveries.Failed, Limit: 50})
		return err
	})
	var version int64
	suspend := repeat(func() error {
		version++
		return st.ApplyWorkspace(ctx, store.Workspace{ID: ws, Version: version, Suspended: version%2 == 0, Webhooks: true})
	})
	// the last subscription is deleted while the test uses the other subscriptions
	remove := repeat(func() error {
		if err := st.Delete(ctx, ws, subs[3]); err != nil && !errors.Is(err, pg.ErrNotFound) {
			return err
		}
		for n := 1; n > 0; { // retention.Job deletes the history only after the queue
			var err error
			if _, n, err = st.DeleteQueued(ctx, subs[3], store.QueuePosition{}, 20); err != nil {
				return err
			}
		}
		_, _, err := st.DeleteHistory(ctx, subs[3], store.NewestHistory(), 20)
		return err
	})
	var all sync.WaitGroup
	for _, loop := range []func(){ingest, ingest, work, work, work, change, replay, suspend, remove} {
		all.Go(loop)
	}
	all.Wait()
	const deadlocks = `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`
	wantEqual(t, "deadlocks", r.count(deadlocks), 0)
	if n := stored.Load(); n < batches {
		t.Errorf("stored batches = %d, want at least %d", n, batches)
	}
}
