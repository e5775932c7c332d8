package pg_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
)

const schema = "postgres_test"

var track = pg.Migrations{Name: schema, FS: fstest.MapFS{
	"0001_thing.sql": {Data: []byte("-- +goose Up\nCREATE TABLE thing (id uuid PRIMARY KEY, other uuid, at timestamptz NOT NULL DEFAULT now());\n" +
		"CREATE TABLE serial (id bigint GENERATED ALWAYS AS IDENTITY, v int);\n")},
}}

var nextTrack = pg.Migrations{Name: schema, FS: fstest.MapFS{
	"0001_thing.sql": track.FS.(fstest.MapFS)["0001_thing.sql"],
	"0002_more.sql":  {Data: []byte("-- +goose Up\nALTER TABLE thing ADD COLUMN more int;\n")},
}}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	var fault *pgconn.PgError
	if !errors.As(err, &fault) {
		t.Errorf("err: error = %v, want a %T", err, fault)
	} else if fault.Code != code {
		t.Errorf("err: fault.Code = %v, want %v", fault.Code, code)
	}
}

func TestOpen_ApplicationRoleCannotChangeTheSchema(t *testing.T) {
	t.Parallel()
	pool, ctx := pgtest.New(t, schema, track), t.Context()
	if _, err := pool.Exec(ctx, "INSERT INTO serial (v) VALUES (1)"); err != nil {
		t.Errorf("insert with an identity column: %v", err)
	}
	if _, err := pool.Exec(ctx, "DELETE FROM serial"); err != nil {
		t.Errorf("delete: %v", err)
	}
	const denied = "42501"
	for _, statement := range []string{
		"CREATE TABLE mine (id int)", "ALTER TABLE thing ADD COLUMN x int", "DROP TABLE thing", "TRUNCATE thing", "CREATE SCHEMA mine",
		"CREATE TABLE public.mine (id int)", "UPDATE schema_" + schema + " SET version_id = 7",
	} {
		_, err := pool.Exec(ctx, statement)
		t.Run(statement, func(t *testing.T) { wantCode(t, err, denied) })
	}
}

func TestProvision_RolesCannotAccessOtherSchemas(t *testing.T) {
	t.Parallel()
	pool, ctx := pgtest.New(t, schema, track), t.Context()
	super := pgtest.Super(t, pool, schema)
	address := super.Config().ConnString()
	var wait sync.WaitGroup
	for range 4 { // concurrent and repeated calls must succeed
		wait.Go(func() {
			if err := pg.Provision(ctx, address, "postgres_test_other", "o", "a"); err != nil {
				t.Errorf("Provision: %v", err)
			}
		})
	}
	wait.Wait()
	for _, role := range []string{"postgres_test_other_app", "postgres_test_other_owner"} {
		err := pgx.BeginFunc(ctx, super, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL ROLE "+role); err != nil {
				return fmt.Errorf("become %s: %w", role, err)
			}
			_, err := tx.Exec(ctx, "SELECT FROM "+schema+".thing")
			return err
		})
		wantCode(t, err, "42501")
	}
}

func TestOpen_RefusesAnOutdatedSchemaAndNamesTheRemedy(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, schema, track)
	running, owning := pool.Config().ConnString(), pgtest.Owner(t, pool, schema).Config().ConnString()

	_, err := pg.Open(t.Context(), pg.Config{URL: running}, schema, nextTrack)
	if err == nil {
		t.Fatal("err: pg.Open = nil, want an error")
	}
	if !strings.Contains(err.Error(), "POSTGRES_MIGRATE_URL") {
		t.Fatalf(`err = %q, want it to contain "POSTGRES_MIGRATE_URL"`, err.Error())
	}
	var wait sync.WaitGroup
	for range 4 { // several replicas can start at the same time
		wait.Go(func() {
			pool, err := pg.Open(t.Context(), pg.Config{URL: running, MigrateURL: owning}, schema, nextTrack)
			if err != nil {
				t.Errorf("Open with MigrateURL: %v", err)
				return
			}
			pool.Close()
		})
	}
	wait.Wait()
	// With fewer migrations, Open behaves like the previous release.
	newer, err := pg.Open(t.Context(), pg.Config{URL: running}, schema, track)
	if err != nil {
		t.Fatalf("a newer database is refused: %v", err)
	}
	newer.Close()
}

// makeOld adds the version table that was used before the first release.
func makeOld(t *testing.T, pool *pgxpool.Pool) (running, owning string) {
	t.Helper()
	owner := pgtest.Owner(t, pool, schema)
	if _, err := owner.Exec(t.Context(), "CREATE TABLE "+schema+"_version (version_id bigint)"); err != nil {
		t.Fatal(err)
	}
	return pool.Config().ConnString(), owner.Config().ConnString()
}

func TestMigrate_RefusesASchemaBeforeTheFirstRelease(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, schema, track)
	_, owning := makeOld(t, pool)
	err := pg.Migrate(t.Context(), owning, schema, nextTrack)
	if !errors.Is(err, pg.ErrOldSchema) {
		t.Fatalf("Migrate = %v, want ErrOldSchema", err)
	}
	for _, remedy := range []string{"remove .ringfence", "docker compose down -v", "DROP SCHEMA " + schema + " CASCADE"} {
		if !strings.Contains(err.Error(), remedy) {
			t.Errorf("Migrate = %q, want it to contain %q", err, remedy)
		}
	}
	var columns int
	err = pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_attribute WHERE attrelid = 'thing'::regclass AND attname = 'more'`).Scan(&columns)
	if err != nil {
		t.Fatal(err)
	}
	if columns != 0 {
		t.Error("the migration to the next version was applied, want no change")
	}
}

func TestOpen_RefusesASchemaBeforeTheFirstRelease(t *testing.T) {
	t.Parallel()
	running, _ := makeOld(t, pgtest.New(t, schema, track))
	if _, err := pg.Open(t.Context(), pg.Config{URL: running}, schema, track); !errors.Is(err, pg.ErrOldSchema) {
		t.Errorf("Open = %v, want ErrOldSchema", err)
	}
}

func TestMigrate_ErrorForAMissingSchemaNamesTheRemedy(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, schema, track)
	err := pg.Migrate(t.Context(), pgtest.Owner(t, pool, schema).Config().ConnString(), "nowhere", track)
	if err == nil {
		t.Error("err: pg.Migrate = nil, want an error")
	} else if !strings.Contains(err.Error(), "provision") {
		t.Errorf(`err = %q, want it to contain "provision"`, err.Error())
	}
}

func TestMigrate_RejectsAnEmptyURL(t *testing.T) {
	t.Setenv("PGHOST", "127.0.0.1")
	t.Setenv("PGPORT", "1")
	err := pg.Migrate(t.Context(), "", schema, track)
	if err == nil {
		t.Error("err: pg.Migrate = nil, want an error")
	} else if !strings.Contains(err.Error(), "POSTGRES_MIGRATE_URL is not set") {
		t.Errorf(`err = %q, want it to contain "POSTGRES_MIGRATE_URL is not set"`, err.Error())
	}
}

type thing struct {
	ID    uuid.UUID  `db:"id"`
	Other *uuid.UUID `db:"other"`
	At    time.Time  `db:"at"`
}

func TestPool_JITIsOff(t *testing.T) {
	t.Parallel()
	var jit string
	if err := pgtest.New(t, schema, track).QueryRow(t.Context(), "SHOW jit").Scan(&jit); err != nil {
		t.Errorf("jit: QueryRow: %v", err)
	} else if jit != "off" {
		t.Errorf(`jit = %q, want "off"`, jit)
	}
}

func TestPool_StoresUUIDsAndTimesUnchanged(t *testing.T) {
	t.Parallel()
	pool, ctx := pgtest.New(t, schema, track), t.Context()
	id, other := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	at := time.Date(2026, 7, 1, 12, 0, 0, 123456000, time.UTC)
	insert := "INSERT INTO thing (id, other, at) VALUES (@id, @other, @at)"
	var none *uuid.UUID
	for _, args := range []pgx.NamedArgs{{"id": id, "other": &other, "at": at}, {"id": other, "other": none, "at": at}} {
		if _, err := pool.Exec(ctx, insert, args); err != nil {
			t.Fatal(err)
		}
	}
	rows, _ := pool.Query(ctx, "SELECT id, other, at FROM thing WHERE id = ANY(@ids) ORDER BY id", pgx.NamedArgs{"ids": []uuid.UUID{id, other}})
	got, err := pgx.CollectRows(rows, pgx.RowToStructByName[thing])
	if err != nil {
		t.Fatalf("pgx.CollectRows: %v", err)
	}
	if len(got) != 2 {
		t.Fatalf("length of got = %d, want 2", len(got))
	}
	if got[0].ID != id {
		t.Errorf("got[0].ID = %v, want %v", got[0].ID, id)
	}
	if got[0].Other == nil {
		t.Fatalf("got[0].Other = nil, want a value")
	}
	if *got[0].Other != other {
		t.Errorf("got[0].Other = %v, want %v", *got[0].Other, other)
	}
	if got[1].Other != nil {
		t.Errorf("got[1].Other = %v, want nil", got[1].Other)
	}
	if !got[0].At.Equal(at) {
		t.Errorf("at: got[0].At = %v, want %v", got[0].At, at)
	} else if value := got[0].At.Location(); value != time.UTC {
		t.Errorf("at: got[0].At.Location() = %v, want %v", value, time.UTC)
	}
	var all []uuid.UUID
	if err := pool.QueryRow(ctx, "SELECT array_agg(id ORDER BY id) FROM thing").Scan(&all); err != nil {
		t.Fatalf("array: %v", err)
	}
	if len(all) != 2 {
		t.Fatalf("array: length of all = %v, want 2", len(all))
	}
	if all[0] != id {
		t.Errorf("array: all[0] = %v, want %v", all[0], id)
	}
}

func TestInTx_RepeatsTheTransactionAfterAConflict(t *testing.T) {
	t.Parallel()
	pool, tries := pgtest.New(t, schema, track), 0
	err := pg.InTx(t.Context(), pool, func(pgx.Tx) error {
		tries++
		if tries < 3 {
			return fmt.Errorf("lock: %w", &pgconn.PgError{Code: "40P01"})
		}
		return nil
	})
	if err != nil {
		t.Errorf("tries: pg.InTx: %v", err)
	} else if tries != 3 {
		t.Errorf("tries = %v, want 3", tries)
	}
}

func TestIsDown_IsTrueIfTheServerIsUnavailable(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		err        error
		want       bool
		unanswered bool
	}{
		{"no error", nil, false, false},
		{"connection refused", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true, false},
		{"connection reset", &net.OpError{Op: "read", Err: syscall.ECONNRESET}, true, true},
		{"connection closed before the response", io.ErrUnexpectedEOF, true, true},
		{"server is stopping", &pgconn.PgError{Code: "57P01"}, true, false},
		{"server is starting", &pgconn.PgError{Code: "57P03"}, true, false},
		{"connection failure", &pgconn.PgError{Code: "08006"}, true, false},
		{"too many connections", &pgconn.PgError{Code: "53300"}, true, false},
		{"statement timeout", &pgconn.PgError{Code: "57014"}, true, false},
		{"server is a standby", &pgconn.PgError{Code: "25006"}, true, false},
		{"deadline exceeded", context.DeadlineExceeded, true, true},
		{"context canceled by the caller", context.Canceled, false, false},
		{"unique violation", &pgconn.PgError{Code: "23505"}, false, false},
		{"no rows", pgx.ErrNoRows, false, false},
		{"wrong password", &pgconn.PgError{Code: "28P01"}, false, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := test.err
			if err != nil {
				err = fmt.Errorf("lock call: %w", err)
			}
			if got := pg.IsDown(err); got != test.want {
				t.Errorf("IsDown(%v) = %v, want %v", err, got, test.want)
			}
			if got := pg.IsUnanswered(err); got != test.unanswered {
				t.Errorf("IsUnanswered(%v) = %v, want %v", err, got, test.unanswered)
			}
		})
	}
}

func TestIsDown_IsTrueForErrorsOfARealOutage(t *testing.T) {
	t.Parallel()
	pool, ctx := pgtest.New(t, schema, track), t.Context()
	super := pgtest.Super(t, pool, schema)
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var pid int
		if err := tx.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			return err
		}
		if _, err := super.Exec(ctx, "SELECT pg_terminate_backend($1, 5000)", pid); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "SELECT 1")
		if !pg.IsDown(err) {
			t.Errorf("a statement on a killed connection: %v", err)
		}
		_, err = tx.Exec(ctx, "SELECT 1")
		return err
	})
	if !pg.IsDown(err) {
		t.Errorf("a second statement on it: %v", err)
	}
	away, err := pgxpool.New(ctx, "postgres://x@127.0.0.1:1/x")
	if err != nil {
		t.Fatal(err)
	}
	defer away.Close()
	if err := away.Ping(ctx); !pg.IsDown(err) {
		t.Errorf("no listener: %v", err)
	}
	away.Close()
	if err := away.Ping(ctx); !pg.IsDown(err) {
		t.Errorf("a closed pool: %v", err)
	}
}
