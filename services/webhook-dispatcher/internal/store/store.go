// Package store contains all SQL of the dispatcher: subscriptions, the delivery queue, and the
// history of deliveries. It encrypts the secrets of subscriptions before it stores them.
package store

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/seal"
)

// Store accesses the schema webhook_dispatcher. It is safe for concurrent use.
type Store struct {
	pool *pgxpool.Pool
	box  *seal.Box
	// replays limits the number of concurrent calls of ReplayPeriod, so that enough connections
	// remain for events and deliveries.
	replays chan struct{}
}

const maxReplays = 2

// New returns a store. The box encrypts and decrypts the secrets of subscriptions.
func New(pool *pgxpool.Pool, box *seal.Box) *Store {
	return &Store{pool, box, make(chan struct{}, maxReplays)}
}

// manyGenericPlan is like pg.Many, but applies genericPlan first.
func manyGenericPlan[T any](ctx context.Context, s *Store, sql string, args pg.Args) (found []T, err error) {
	var batch pgx.Batch
	batch.Queue(genericPlan)
	batch.Queue(sql, args).Query(func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, pgx.RowToStructByName[T])
		return err
	})
	return found, s.pool.SendBatch(ctx, &batch).Close()
}

// genericPlan makes Postgres plan the following statements of the transaction once for each
// connection, only with index scans and nested loops. The queue fills and empties within seconds.
// With outdated statistics, Postgres could choose a plan that scans the whole queue.
const genericPlan = `
SELECT set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_sort', 'off', true),
       set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true),
       set_config('enable_material', 'off', true), set_config('enable_mergejoin', 'off', true)`
