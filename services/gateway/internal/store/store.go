// Package store contains all SQL of the gateway.
package store

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/outbox"
)

// Schema is the name of the gateway's schema.
const Schema = "gateway"

// Store accesses the gateway's tables.
type Store struct {
	pool *pgxpool.Pool
	// wakeRelay is called after an event was committed, so that the relay publishes the event.
	wakeRelay func()
	entries   entryBatcher
}

// New returns a store. In tests relay can be nil.
func New(pool *pgxpool.Pool, relay *outbox.Relay) *Store {
	wake := func() {}
	if relay != nil {
		wake = relay.Wake
	}
	return &Store{pool: pool, wakeRelay: wake}
}

func jsonOrNull(document []byte) any {
	if len(document) == 0 {
		return nil
	}
	return document
}
