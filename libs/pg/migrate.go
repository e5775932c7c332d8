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

// Migrate applies the migrations of all tracks under one advisory lock. It connects as the role
// that owns the schema. If ownerURL is empty, it returns an error, because pgx would connect to the
// default database of the machine.
func Migrate(ctx context.Context, ownerURL, schema string, tracks ...Migrations) error {
	if ownerURL == "" {
		return errors.New("POSTGRES_MIGRATE_URL is not set: migrations run as the schema's owner")
	}
	settings, err := pgx.ParseConfig(ownerURL)
	if err != nil {
		return fmt.Errorf("parse POSTGRES_MIGRATE_URL: %w", err)
	}
	applySettings(settings, schema)
	db := stdlib.OpenDB(*settings)
	defer func() { _ = db.Close() }()

	var lock *sql.Conn
	err = retryUntilUp(ctx, func(ctx context.Context) error {
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

// lockMigrations takes the lock, which is released when the connection closes. It retries instead
// of waiting in the server. A waiting statement has an open snapshot, and CREATE INDEX CONCURRENTLY
// of another process would wait for that snapshot.
func lockMigrations(ctx context.Context, lock *sql.Conn, schema string) error {
	var exists bool
	err := lock.QueryRowContext(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", schema).Scan(&exists)
	if err != nil {
		return fmt.Errorf("find schema %s: %w", schema, err)
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
		goose.WithTableName(track.versionTable()), goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	if _, err := goer.Up(ctx); err != nil {
		return err
	}
	// Default privileges can give the application role more than the right to read the versions. So
	// each start sets its privileges.
	var exists bool
	err = db.QueryRowContext(ctx, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", AppRole(schema)).Scan(&exists)
	if err != nil || !exists {
		return err
	}
	table, app := pgx.Identifier{track.versionTable()}.Sanitize(), pgx.Identifier{AppRole(schema)}.Sanitize()
	// One statement revokes and grants, because another replica can be reading the version.
	if _, err := db.ExecContext(ctx, "REVOKE ALL ON "+table+" FROM "+app+"; GRANT SELECT ON "+table+" TO "+app); err != nil {
		return fmt.Errorf("grant %s access to %s: %w", app, table, err)
	}
	return nil
}

// checkVersions returns an error if a track in the database is older than this version of the
// program. A newer track is accepted: migrations are compatible with the previous release, and
// another replica can already run the next release.
func checkVersions(ctx context.Context, pool *pgxpool.Pool, schema string, tracks []Migrations) error {
	if err := pool.Ping(ctx); err != nil {
		return fmt.Errorf("connect to schema %s: %w", schema, err)
	}
	var current *string
	if err := pool.QueryRow(ctx, "SELECT current_schema()").Scan(&current); err != nil {
		return fmt.Errorf("read the current schema: %w", err)
	}
	if pool.Config().BeforeConnect != nil && (current == nil || *current != schema) {
		return fmt.Errorf("behind the pooler, statements do not find schema %[1]s: "+
			"set the parameters of the application role (ALTER ROLE %[2]s SET search_path = %[1]s, "+
			"and those that deploy/compose/postgres.sql lists)", schema, AppRole(schema))
	}
	for _, track := range tracks {
		if err := track.refuseOld(schema, func(sql string, arg any) scanner { return pool.QueryRow(ctx, sql, arg) }); err != nil {
			return err
		}
		want, err := track.newestVersion()
		if err != nil {
			return err
		}
		have, err := track.appliedVersion(ctx, pool)
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

// versionTable returns the name of the table that contains the applied versions of the track.
func (m Migrations) versionTable() string { return "schema_" + m.Name }

// ErrOldSchema is returned by Migrate and Open for a schema that was created before the first
// release. The migrations of that time were replaced by different migrations with the same numbers.
var ErrOldSchema = errors.New("made by a version before the first release, and this version cannot read it")

const oldSchemaRemedy = "To keep the data, run the old version: it is the parent of the commit that added " +
	"libs/outbox/migrations/0001_init.sql. To drop the data, remove the database, provision it again and start again: " +
	"with make run, remove .ringfence; with Compose, run docker compose down -v; " +
	"otherwise, run DROP SCHEMA %s CASCADE and deploy/compose/postgres.sql"

// scanner is a row of database/sql or of pgx.
type scanner interface{ Scan(dest ...any) error }

// refuseOld returns ErrOldSchema if the schema contains the version table that was used before the
// first release.
func (m Migrations) refuseOld(schema string, query func(sql string, arg any) scanner) error {
	var exists bool
	err := query("SELECT to_regclass($1) IS NOT NULL", pgx.Identifier{m.Name + "_version"}.Sanitize()).Scan(&exists)
	if err != nil {
		return fmt.Errorf("find the old version table of schema %s: track %s: %w", schema, m.Name, err)
	}
	if exists {
		return fmt.Errorf("schema %s was %w. "+oldSchemaRemedy, schema, ErrOldSchema, schema)
	}
	return nil
}

// newestVersion returns the highest number of the migration files, or 0 if there are none.
func (m Migrations) newestVersion() (int64, error) {
	files, err := fs.Glob(m.FS, "*.sql")
	if err != nil {
		return 0, fmt.Errorf("list migrations of track %s: %w", m.Name, err)
	}
	var newest int64
	for _, file := range files {
		version, err := goose.NumericComponent(path.Base(file))
		if err != nil {
			return 0, fmt.Errorf("parse the number of migration %s: %w", file, err)
		}
		newest = max(newest, version)
	}
	return newest, nil
}

// appliedVersion returns the version of the track in the database, or 0 if the track was never
// migrated.
func (m Migrations) appliedVersion(ctx context.Context, pool *pgxpool.Pool) (int64, error) {
	var exists bool
	table := pgx.Identifier{m.versionTable()}.Sanitize()
	err := pool.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", table).Scan(&exists)
	if err != nil || !exists {
		return 0, err
	}
	var version int64
	err = pool.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+table+" WHERE is_applied").Scan(&version)
	return version, err
}
