// Package store contains all SQL of the service `calls`. Each method is one transaction: a row and
// its event commit together. Packages callstate and agents contain the rules.
package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/calls/internal/recordings"
)

// Store accesses the schema calls.
type Store struct {
	pool  *pgxpool.Pool
	links *recordings.Links
}

// New returns a store. links signs the links to recordings in the events of calls. It is nil if no
// object storage is configured; then events have no links.
func New(pool *pgxpool.Pool, links *recordings.Links) *Store { return &Store{pool: pool, links: links} }

// newestFirst is the end of every statement of a public list. It orders by the bytes of the id.
// With ORDER BY id, the planner could use the primary key and read the rows of all other
// workspaces.
const newestFirst = ` ORDER BY uuid_send(id) DESC LIMIT @rows`

// queryListed reads rows that have only some of the columns. If the first argument is
// QueryExecModeCacheDescribe, Postgres plans the statement again for the values of its arguments.
func queryListed[T any](ctx context.Context, db pg.Querier, sql string, args ...any) ([]T, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByNameLax[T])
}

// lockRequestID locks a request id. A transaction takes the lock before it creates a request with
// the id, and before it abandons the id.
const lockRequestID = `SELECT pg_advisory_xact_lock(hashtextextended(@request_id::text, 0))`

func lockArgs(id uuid.UUID) pgx.NamedArgs { return pgx.NamedArgs{"request_id": id.String()} }
