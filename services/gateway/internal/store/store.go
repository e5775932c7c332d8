// Package store owns every SQL statement of the gateway.
package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
)

// Schema is the gateway's.
const Schema = "gateway"

// ErrMissing: no such row.
var ErrMissing = errors.New("no such row")

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

// one is pg.One that answers ErrMissing.
func one[T any](ctx context.Context, q pg.Querier, sql string, args pgx.NamedArgs) (T, error) {
	row, err := pg.One[T](ctx, q, sql, args)
	if errors.Is(err, pgx.ErrNoRows) {
		return row, ErrMissing
	}
	return row, err
}

// jsonOrNull keeps an absent document NULL.
func jsonOrNull(document []byte) any {
	if len(document) == 0 {
		return nil
	}
	return document
}
