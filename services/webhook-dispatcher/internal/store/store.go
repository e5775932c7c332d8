// Package store holds every SQL statement of the dispatcher: subscriptions, the open work, and the history of
// deliveries. Secrets are sealed on the way in and opened on the way out; nobody else sees the sealed form.
package store

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/seal"
)

// Store speaks to the schema webhook_dispatcher.
type Store struct {
	pool *pgxpool.Pool
	box  *seal.Box
}

// New makes a store.
func New(pool *pgxpool.Pool, box *seal.Box) *Store { return &Store{pool: pool, box: box} }

// manyGenericPlan is pg.Many for the statements of the queue's work: they are planned once a connection, and for the indexes that they
// were written for.
func manyGenericPlan[T any](ctx context.Context, s *Store, sql string, args pg.Args) (found []T, err error) {
	var batch pgx.Batch
	batch.Queue(genericPlan)
	batch.Queue(sql, args).Query(func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, pgx.RowToStructByName[T])
		return err
	})
	return found, s.pool.SendBatch(ctx, &batch).Close()
}

// A queue fills and empties within seconds: its statistics are of another time, and a plan that sorts or keeps what waits costs more
// with each row that does. It holds for the transaction, which may be one batch.
const genericPlan = `
SELECT set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_sort', 'off', true),
       set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true),
       set_config('enable_material', 'off', true), set_config('enable_mergejoin', 'off', true)`
