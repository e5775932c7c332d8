// Package pgtest gives each test a database of its own, cloned from a migrated template.
package pgtest

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
)

// New clones a database with the schema migrated and connects as the running role. The server is
// RINGFENCE_TEST_POSTGRES (a superuser URL; `make test` starts one); without it the test fails with the remedy.
func New(t testing.TB, schema string, tracks ...pg.Migrations) *pgxpool.Pool { panic("unwritten") }

// Owner connects to the same database as the owning role.
func Owner(t testing.TB, pool *pgxpool.Pool, schema string) *pgxpool.Pool { panic("unwritten") }
