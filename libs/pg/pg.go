// Package pg owns how a service reaches its Postgres schema: the pool, the two roles, forward-only
// migrations under a lock. It knows no table.
package pg

import (
	"context"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Config is the database part of every service's environment.
type Config struct {
	// URL connects as the running role <schema>_app.
	URL string `env:"POSTGRES_URL,required"`
	// MigrateURL connects as the owning role <schema>_owner; empty: migrations are somebody else's job
	// and the service only checks that they ran.
	MigrateURL string `env:"POSTGRES_MIGRATE_URL"`
	// MaxConns bounds the pool.
	MaxConns int32 `env:"POSTGRES_MAX_CONNS" envDefault:"16"`
	// StatementTimeout ends a statement that hangs.
	StatementTimeout time.Duration `env:"POSTGRES_STATEMENT_TIMEOUT" envDefault:"15s"`
}

// Migrations is one track of numbered SQL files with its own version table, so that libs' tables
// (outbox, inbox) and the service's move apart.
type Migrations struct {
	// Name is the track: "outbox", "inbox", or the service's schema.
	Name string
	FS   fs.FS
}

// Open makes the pool (traced with otelpgx, search_path set to the schema) and waits up to 30 s for the
// database to answer. With MigrateURL set it migrates first.
func Open(ctx context.Context, cfg Config, schema string, tracks ...Migrations) (*pgxpool.Pool, error) {
	panic("unwritten")
}

// Migrate brings every track of the schema up to date, under one advisory lock, as the owning role.
func Migrate(ctx context.Context, ownerURL, schema string, tracks ...Migrations) error {
	panic("unwritten")
}

// Provision creates a schema with its owning and running role (passwords given), default
// privileges included, as a superuser. It is idempotent. No other role gets any right on it.
func Provision(ctx context.Context, superURL, schema, ownerPassword, appPassword string) error {
	panic("unwritten")
}

// InTx runs f in one transaction; a serialization failure or deadlock is tried again (at most 5 times).
func InTx(ctx context.Context, pool *pgxpool.Pool, f func(pgx.Tx) error) error { panic("unwritten") }

// IsDown says whether the error means that the database cannot be reached or is ending or
// starting, so that the caller answers 503 unavailable rather than 500.
func IsDown(err error) bool { panic("unwritten") }
