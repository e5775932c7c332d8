// Package pgtest gives each test a separate database, which is cloned from a migrated template. The
// server stores one template per set of migrations. All packages and processes share the templates.
package pgtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
)

const (
	serverVariable = "RINGFENCE_TEST_POSTGRES"
	password       = "ringfence-test"
	startTimeout   = 2 * time.Minute
)

// New clones a database with the migrated schema and connects to it as the application role. The
// test's end drops the database.
// RINGFENCE_TEST_POSTGRES, which `make test` sets, is the superuser URL of the server. Without the
// variable the test fails, or is skipped with -short.
func New(t testing.TB, schema string, tracks ...pg.Migrations) *pgxpool.Pool {
	t.Helper()
	super := os.Getenv(serverVariable)
	if super == "" {
		if testing.Short() {
			t.Skipf("%s is not set", serverVariable)
		}
		t.Fatalf("%s is not set: run `make test`, which starts a Postgres, or name a superuser URL of a throw-away server there", serverVariable)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	name := "test_" + schema + "_" + strings.ReplaceAll(uuid.NewString(), "-", "")[:16]
	err := serverConn.withConn(ctx, super, func(admin *pgx.Conn) error {
		template, err := migratedTemplate(ctx, admin, super, schema, tracks)
		if err != nil {
			return fmt.Errorf("make template database of schema %s: %w", schema, err)
		}
		return cloneTemplate(ctx, admin, name, template)
	})
	if err != nil {
		t.Fatalf("create test database: %v", err)
	}
	t.Cleanup(func() { drop(t, super, name) })

	pool, err := pg.Open(ctx, poolConfig(t, super, name, schema), schema, tracks...)
	if err != nil {
		t.Fatalf("open test database: %v", err)
	}
	t.Cleanup(func() { closeSoon(pool) })
	return pool
}

// Owner returns a second pool for the same database. It connects as the role that owns the schema.
func Owner(t testing.TB, pool *pgxpool.Pool, schema string) *pgxpool.Pool {
	t.Helper()
	return connect(t, pool, schema, pg.OwnerRole(schema))
}

// Super returns a second pool for the same database. It connects as the superuser.
func Super(t testing.TB, pool *pgxpool.Pool, schema string) *pgxpool.Pool {
	t.Helper()
	return connect(t, pool, schema, "")
}

func connect(t testing.TB, pool *pgxpool.Pool, schema, role string) *pgxpool.Pool {
	t.Helper()
	// These connections have no timeouts, because a test can hold locks and run statements for any
	// length of time.
	address, err := url.Parse(databaseURL(os.Getenv(serverVariable), pool.Config().ConnConfig.Database, role))
	if err != nil {
		t.Fatalf("parse %s: %v", serverVariable, err)
	}
	query := address.Query()
	query.Set("idle_in_transaction_session_timeout", "0")
	address.RawQuery = query.Encode()
	other, err := pg.Open(t.Context(), pg.Config{URL: address.String(), MaxConns: 4, StatementTimeout: time.Hour}, schema)
	if err != nil {
		t.Fatalf("connect as %q: %v", role, err)
	}
	t.Cleanup(func() { closeSoon(other) })
	return other
}

// migratedTemplate returns the name of the migrated database to clone, and creates the database if
// it does not exist. It takes an advisory lock in the server's first database, which all processes
// share.
func migratedTemplate(
	ctx context.Context, admin *pgx.Conn, super, schema string, tracks []pg.Migrations,
) (string, error) {
	sum, err := fingerprint(schema, tracks)
	if err != nil {
		return "", err
	}
	name := "template_" + schema + "_" + sum
	var ready bool
	const isReady = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1 AND datistemplate)"
	if err := admin.QueryRow(ctx, isReady, name).Scan(&ready); err != nil || ready {
		return name, err
	}
	const lock = "hashtextextended('pgtest template', 0)"
	if _, err := admin.Exec(ctx, "SELECT pg_advisory_lock("+lock+")"); err != nil {
		return "", err
	}
	defer func() { _, _ = admin.Exec(ctx, "SELECT pg_advisory_unlock("+lock+")") }()
	if err := admin.QueryRow(ctx, isReady, name).Scan(&ready); err != nil || ready {
		return name, err
	}
	quoted := pgx.Identifier{name}.Sanitize()
	for _, statement := range []string{"DROP DATABASE IF EXISTS " + quoted + " WITH (FORCE)", "CREATE DATABASE " + quoted} {
		if _, err := admin.Exec(ctx, statement); err != nil {
			return "", fmt.Errorf("%s: %w", statement, err)
		}
	}
	if err := pg.Provision(ctx, databaseURL(super, name, ""), schema, password, password); err != nil {
		return "", err
	}
	if err := pg.Migrate(ctx, databaseURL(super, name, pg.OwnerRole(schema)), schema, tracks...); err != nil {
		return "", err
	}
	_, err = admin.Exec(ctx, "ALTER DATABASE "+quoted+" IS_TEMPLATE true")
	return name, err
}

// fingerprint returns a hash of everything that determines the content of the template.
func fingerprint(schema string, tracks []pg.Migrations) (string, error) {
	hash := sha256.New()
	fmt.Fprintf(hash, "2 %s\n", schema) // increment the number 2 when pg.Provision changes
	for _, track := range tracks {
		err := fs.WalkDir(track.FS, ".", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := fs.ReadFile(track.FS, path)
			fmt.Fprintf(hash, "%s %s %d\n%s\n", track.Name, path, len(content), content)
			return err
		})
		if err != nil {
			return "", fmt.Errorf("read migrations of track %s: %w", track.Name, err)
		}
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}

// cloneTemplate copies the template. It retries while autovacuum uses the template (the error
// object_in_use).
func cloneTemplate(ctx context.Context, admin *pgx.Conn, name, template string) error {
	for {
		_, err := admin.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+" TEMPLATE "+pgx.Identifier{template}.Sanitize())
		var fault *pgconn.PgError
		if err == nil || !errors.As(err, &fault) || fault.Code != "55006" || ctx.Err() != nil {
			return err
		}
	}
}

func drop(t testing.TB, super, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	err := serverConn.withConn(ctx, super, func(admin *pgx.Conn) error {
		_, err := admin.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
		return err
	})
	if err != nil {
		t.Logf("drop test database %s: %v", name, err)
	}
}

// serverConn is the superuser's connection to the test server. All tests of the process share it,
// because opening a connection takes a fourth of the time of a clone. The connection stays open
// until the process ends.
var serverConn adminConn

type adminConn struct {
	mu   sync.Mutex
	conn *pgx.Conn
	url  string
}

// withConn calls f with a connection to the server in url. It connects only if no such connection
// is open.
func (a *adminConn) withConn(ctx context.Context, url string, f func(*pgx.Conn) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conn != nil && a.url != url {
		_ = a.conn.Close(ctx)
	}
	if a.conn == nil || a.conn.IsClosed() {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return fmt.Errorf("connect to %s: %w", serverVariable, err)
		}
		a.conn, a.url = conn, url
	}
	return f(a.conn)
}

// closeSoon closes the pool, but waits at most 2 s for connections that the test never released.
// Dropping the database ends these connections.
func closeSoon(pool *pgxpool.Pool) {
	closed := make(chan struct{})
	go func() { pool.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(2 * time.Second):
	}
}

// databaseURL returns the URL of the server for another database. If role is set, the URL is for
// that role.
func databaseURL(super, database, role string) string {
	address, err := url.Parse(super)
	if err != nil {
		return super
	}
	address.Path = "/" + database
	if role != "" {
		address.User = url.UserPassword(role, password)
	}
	return address.String()
}
