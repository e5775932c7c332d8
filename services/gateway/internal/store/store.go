// Package store owns every SQL statement of the gateway.
package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
)

// Schema is the gateway's.
const Schema = "gateway"

// ErrMissing: no such row.
var ErrMissing = errors.New("no such row")

// ErrStale: the row is not any more as it was when it was read.
var ErrStale = errors.New("the row was changed by somebody else")

// Store reads and writes the gateway's tables.
type Store struct {
	pool *pgxpool.Pool
	// wake tells the relay that a fact was committed.
	wake func()
}

// New makes a store; relay may be nil in tests.
func New(pool *pgxpool.Pool, relay *outbox.Relay) *Store {
	wake := func() {}
	if relay != nil {
		wake = relay.Wake
	}
	return &Store{pool: pool, wake: wake}
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func one[T any](ctx context.Context, q querier, sql string, args pgx.NamedArgs) (T, error) {
	rows, err := q.Query(ctx, sql, pg.Args(args))
	if err != nil {
		var none T
		return none, fmt.Errorf("query: %w", err)
	}
	found, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[T])
	if errors.Is(err, pgx.ErrNoRows) {
		return found, ErrMissing
	}
	if err != nil {
		return found, fmt.Errorf("read row: %w", err)
	}
	return found, nil
}

func many[T any](ctx context.Context, q querier, sql string, args pgx.NamedArgs) ([]T, error) {
	rows, err := q.Query(ctx, sql, pg.Args(args))
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[T])
	if err != nil {
		return nil, fmt.Errorf("read rows: %w", err)
	}
	return found, nil
}

// jsonOrNull keeps an absent document NULL.
func jsonOrNull(document []byte) any {
	if len(document) == 0 {
		return nil
	}
	return document
}
