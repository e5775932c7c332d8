// Package store holds every SQL statement of calls. Each method is one deed: the row, and the fact that
// tells of it, commit together. It decides nothing that internal/call or internal/agent can decide.
package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
)

// Store is the schema calls.
type Store struct{ pool *pgxpool.Pool }

// New makes a store over the pool.
func New(pool *pgxpool.Pool) *Store { return &Store{pool: pool} }

// newestFirst ends every statement of a public list. Pages run on the key, but on its bytes: ordered by id itself, a statement could
// also be served by the primary key, through the rows of every other workspace, and the planner would choose that where it
// believes a workspace to be large.
const newestFirst = ` ORDER BY uuid_send(id) DESC LIMIT @rows`

// listed reads rows of which only some columns were asked for. With QueryExecModeCacheDescribe in front of its arguments the statement is
// planned for the values it is given, every time.
func listed[T any](ctx context.Context, db pg.Querier, sql string, args ...any) ([]T, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByNameLax[T])
}

// lockRequestID is taken by whoever decides whether a request id becomes a request or a tombstone.
const lockRequestID = `SELECT pg_advisory_xact_lock(hashtextextended(@request_id::text, 0))`

func lockArgs(id uuid.UUID) pgx.NamedArgs { return pgx.NamedArgs{"request_id": id.String()} }
