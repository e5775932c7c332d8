package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/deploy/e2e/rig"
)

// posts prints POST /v1/calls per second beside the durable commits per second that as many
// goroutines reach on the same Postgres, before and after. The calls are scheduled a day ahead, so nothing is dialled.
func posts(ctx context.Context, set settings, stack *rig.Stack, db *rig.Postgres) error {
	w, err := stack.NewWorkspace(ctx, "bench posts", "1000000")
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, fmt.Sprintf("%s&pool_max_conns=%d", db.URL, set.clients))
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS public.bench_commits (id bigint GENERATED ALWAYS AS IDENTITY, at timestamptz)`); err != nil {
		return err
	}
	commit := func(ctx context.Context, _ int64) error {
		_, err := pool.Exec(ctx, `INSERT INTO public.bench_commits (at) VALUES (now())`)
		return err
	}
	tomorrow := time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
	post := func(ctx context.Context, n int64) error {
		_, err := w.Place(ctx, map[string]any{"to": fmt.Sprintf("+1415%07d", n%9_999_900), "scheduled_for": tomorrow})
		return err
	}
	before, _, err := closedLoop(ctx, set, set.each/2, commit)
	if err != nil {
		return err
	}
	rate, took, err := closedLoop(ctx, set, set.each, post)
	if err != nil {
		return err
	}
	after, _, err := closedLoop(ctx, set, set.each/2, commit)
	if err != nil {
		return err
	}
	limit := (before + after) / 2
	fmt.Printf("durable commits          %8.0f /s   (single-row inserts, %d clients; %.0f before, %.0f after)\n", limit, set.clients, before, after)
	fmt.Printf("POST /v1/calls           %8.0f /s   %s; %.1f %% of the commit rate\n", rate, spread(took), 100*rate/limit)
	return nil
}

// closedLoop lets every client call op again and again for the given time.
func closedLoop(ctx context.Context, set settings, long time.Duration, op func(context.Context, int64) error) (perSecond float64, took []time.Duration, err error) {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		count atomic.Int64
	)
	began := time.Now()
	for range set.clients {
		wg.Go(func() {
			var mine []time.Duration
			var failed error
			for time.Since(began) < long && failed == nil {
				at := time.Now()
				failed = op(ctx, count.Add(1))
				mine = append(mine, time.Since(at))
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
			if failed != nil {
				err = failed
			}
		})
	}
	wg.Wait()
	return float64(len(took)) / time.Since(began).Seconds(), took, err
}
