// Package store contains all SQL of contacts-compliance. It reads from the primary and caches
// nothing, so that an opt-out applies to every check after its commit.
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
	searches workspaceLocks
}

// New creates a store. The pool must use the database role of the service. keys sign the consent
// records.
func New(pool *pgxpool.Pool, keys *consentchain.Keys) *Store { return &Store{pool: pool, keys: keys} }

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// orNull returns nil for a zero value, which a statement treats as an unset filter.
func orNull[T comparable](v T) any {
	var unset T
	if v == unset {
		return nil
	}
	return v
}

// manyWithoutPlanCache plans the statement for its arguments, so that only the filters that are set
// determine the plan.
func manyWithoutPlanCache[T any](ctx context.Context, q querier, sql string, args pgx.NamedArgs) ([]T, error) {
	rows, err := q.Query(ctx, sql, pgx.QueryExecModeExec, pg.Args(args))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[T])
}
