package pg

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

// Migrate brings every track of the schema up to date, under one advisory lock, as the owning role. An empty URL is refused: pgx would take the
// machine's own defaults, and so whatever database stands there.
func Migrate(ctx context.Context, ownerURL, schema string, tracks ...Migrations) error {
	if ownerURL == "" {
		return errors.New("POSTGRES_MIGRATE_URL is not set: migrations run as the schema's owner")
	}
	settings, err := pgx.ParseConfig(ownerURL)
	if err != nil {
		return fmt.Errorf("parse POSTGRES_MIGRATE_URL: %w", err)
	}
	prepare(settings, schema)
	db := stdlib.OpenDB(*settings)
	defer func() { _ = db.Close() }()

	var lock *sql.Conn
	err = patiently(ctx, func(ctx context.Context) error {
		lock, err = db.Conn(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("migrate schema %s: %w", schema, err)
	}
	defer func() { _ = lock.Close() }()
	if err := lockMigrations(ctx, lock, schema); err != nil {
		return err
	}
	for _, track := range tracks {
		if err := track.refuseOld(schema, func(sql string, arg any) scanner { return db.QueryRowContext(ctx, sql, arg) }); err != nil {
			return err
		}
	}
	for _, track := range tracks {
		if err := migrateTrack(ctx, db, schema, track); err != nil {
			return fmt.Errorf("migrate schema %s: track %s: %w", schema, track.Name, err)
		}
	}
	return nil
}

// lockMigrations holds until the connection closes. It asks again and again instead of waiting in the server: a waiting
// statement would hold a snapshot open, and with it CREATE INDEX CONCURRENTLY of the one that migrates.
func lockMigrations(ctx context.Context, lock *sql.Conn, schema string) error {
	var exists bool
	err := lock.QueryRowContext(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", schema).Scan(&exists)
	if err != nil {
		return fmt.Errorf("look for schema %s: %w", schema, err)
	}
	if !exists {
		return fmt.Errorf("schema %s does not exist: provision it and its roles %s and %s as a superuser first", schema, OwnerRole(schema), AppRole(schema))
	}
	for {
		var held bool
		err := lock.QueryRowContext(ctx, "SELECT pg_try_advisory_lock(hashtextextended('migrate ' || $1, 0))", schema).Scan(&held)
		if err != nil {
			return fmt.Errorf("lock migrations of schema %s: %w", schema, err)
		}
		if held {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the migrations of schema %s: %w", schema, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func migrateTrack(ctx context.Context, db *sql.DB, schema string, track Migrations) error {
	goer, err := goose.NewProvider(goose.DialectPostgres, db, track.FS,
		goose.WithTableName(track.versions()), goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	if _, err := goer.Up(ctx); err != nil {
		return err
	}
	// The running role reads versions and never writes them. The revoke is repeated because it is cheap and the default
	// privileges may have been granted after the table was made.
	var exists bool
	err = db.QueryRowContext(ctx, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", AppRole(schema)).Scan(&exists)
	if err != nil || !exists {
		return err
	}
	table, app := pgx.Identifier{track.versions()}.Sanitize(), pgx.Identifier{AppRole(schema)}.Sanitize()
	// At once: another replica may be reading the version this instant.
	if _, err := db.ExecContext(ctx, "REVOKE ALL ON "+table+" FROM "+app+"; GRANT SELECT ON "+table+" TO "+app); err != nil {
		return fmt.Errorf("let %s read %s: %w", app, table, err)
	}
	return nil
}

// checkVersions fails when a track of the database is older than this build. A newer one is fine: migrations are
// backwards compatible for one release, and another replica may already run the next build.
func checkVersions(ctx context.Context, pool *pgxpool.Pool, schema string, tracks []Migrations) error {
	if err := pool.Ping(ctx); err != nil {
		return fmt.Errorf("reach schema %s: %w", schema, err)
	}
	var current *string
	if err := pool.QueryRow(ctx, "SELECT current_schema()").Scan(&current); err != nil {
		return fmt.Errorf("ask for the schema: %w", err)
	}
	if pool.Config().BeforeConnect != nil && (current == nil || *current != schema) {
		return fmt.Errorf("behind the pooler, statements do not find schema %[1]s: give the running role its settings (ALTER ROLE %[2]s SET search_path = %[1]s, "+
			"and those that deploy/compose/postgres.sql lists)", schema, AppRole(schema))
	}
	for _, track := range tracks {
		if err := track.refuseOld(schema, func(sql string, arg any) scanner { return pool.QueryRow(ctx, sql, arg) }); err != nil {
			return err
		}
		want, err := track.newest()
		if err != nil {
			return err
		}
		have, err := track.applied(ctx, pool)
		if err != nil {
			return fmt.Errorf("read version of schema %s: track %s: %w", schema, track.Name, err)
		}
		if have < want {
			return fmt.Errorf("schema %s is at version %d of track %s and this build needs %d: "+
				"run the command migrate with POSTGRES_MIGRATE_URL, or set that variable for this service", schema, have, track.Name, want)
		}
	}
	return nil
}

// versions returns the name of the table with the versions that were applied.
func (m Migrations) versions() string { return "schema_" + m.Name }

// ErrOldSchema is the error of Migrate and Open for a schema that a version before the first release
// made. Its migrations were replaced by other ones with the same numbers.
var ErrOldSchema = errors.New("made by a version before the first release, and this version cannot read it")

const oldSchemaRemedy = "To keep the data, run the old version: it is the parent of the commit that added " +
	"libs/outbox/migrations/0001_init.sql. To drop the data, remove the database, provision it again and start again: " +
	"with make run, remove .ringfence; with Compose, run docker compose down -v; " +
	"otherwise, run DROP SCHEMA %s CASCADE and deploy/compose/postgres.sql"

// scanner is the row of database/sql and that of pgx.
type scanner interface{ Scan(dest ...any) error }

// refuseOld returns ErrOldSchema if the version table of a version before the first release exists.
func (m Migrations) refuseOld(schema string, query func(sql string, arg any) scanner) error {
	var exists bool
	err := query("SELECT to_regclass($1) IS NOT NULL", pgx.Identifier{m.Name + "_version"}.Sanitize()).Scan(&exists)
	if err != nil {
		return fmt.Errorf("look for the old version table of schema %s: track %s: %w", schema, m.Name, err)
	}
	if exists {
		return fmt.Errorf("schema %s was %w. "+oldSchemaRemedy, schema, ErrOldSchema, schema)
	}
	return nil
}

// newest is the highest number among the files; zero when there are none.
func (m Migrations) newest() (int64, error) {
	files, err := fs.Glob(m.FS, "*.sql")
	if err != nil {
		return 0, fmt.Errorf("list migrations of track %s: %w", m.Name, err)
	}
	var newest int64
	for _, file := range files {
		version, err := goose.NumericComponent(path.Base(file))
		if err != nil {
			return 0, fmt.Errorf("number migration %s: %w", file, err)
		}
		newest = max(newest, version)
	}
	return newest, nil
}

// applied is the database's version of the track; zero when the track has never run.
func (m Migrations) applied(ctx context.Context, pool *pgxpool.Pool) (int64, error) {
	var exists bool
	err := pool.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", pgx.Identifier{m.versions()}.Sanitize()).Scan(&exists)
	if err != nil || !exists {
		return 0, err
	}
	var version int64
	err = pool.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+pgx.Identifier{m.versions()}.Sanitize()+" WHERE is_applied").Scan(&version)
	return version, err
}
