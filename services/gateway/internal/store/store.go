// Package store owns every SQL statement of the gateway.
package store

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/outbox"
)

// Schema is the gateway's.
const Schema = "gateway"

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

// jsonOrNull keeps an absent document NULL.
func jsonOrNull(document []byte) any {
	if len(document) == 0 {
		return nil
	}
	return document
}
