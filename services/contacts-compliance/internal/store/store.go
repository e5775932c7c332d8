// Package store owns every SQL statement of contacts-compliance. All reads come from the primary and nothing
// is kept in memory: an opt-out binds the next question after its commit.
package store

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/contacts-compliance/internal/consentchain"
)

// Store reads and writes the schema contacts_compliance.
type Store struct {
	pool     *pgxpool.Pool
	keys     *consentchain.Keys
	searches turns
}

// New makes a store over a pool that runs as the service's role; keys sign the consent records.
func New(pool *pgxpool.Pool, keys *consentchain.Keys) *Store { return &Store{pool: pool, keys: keys} }

// querier is the pool or one of its transactions.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// orNull keeps an unset filter out of a statement.
func orNull[T comparable](v T) any {
	var unset T
	if v == unset {
		return nil
	}
	return v
}

// manyPlanned plans the statement for the values at hand: of optional filters, only those that are set then count.
func manyPlanned[T any](ctx context.Context, q querier, sql string, args pgx.NamedArgs) ([]T, error) {
	rows, err := q.Query(ctx, sql, pgx.QueryExecModeExec, pg.Args(args))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[T])
}
