package pg_test

import (
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
)

// pooledConfig returns a configuration with a PgBouncer in transaction mode that has one session.
func pooledConfig(t *testing.T, pool *pgxpool.Pool) pg.Config {
	t.Helper()
	at := pool.Config().ConnConfig
	super := os.Getenv("RINGFENCE_TEST_POSTGRES")
	direct, err := url.Parse(super)
	if err != nil {
		t.Fatal(err)
	}
	direct.Path, direct.User = "/"+at.Database, url.UserPassword(pg.AppRole(schema), "ringfence-test")
	through := *direct
	through.Host = pgtest.Pooler(t, super, 1)
	return pg.Config{URL: through.String(), DirectURL: direct.String(), MaxConns: 8}
}

func TestOpen_TransactionsBehindAPoolerShareOneSession(t *testing.T) {
	t.Parallel()
	cfg := pooledConfig(t, pgtest.New(t, schema, track))
	pool, err := pg.Open(t.Context(), cfg, schema, track)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				id := uuid.New()
				err := pg.InTx(t.Context(), pool, func(tx pgx.Tx) error {
					_, err := tx.Exec(t.Context(), "INSERT INTO thing (id) VALUES (@id)", pg.Args{"id": id})
					return err
				})
				if err == nil {
					err = pg.InPipeline(t.Context(), pool, func(tx *pg.Pipeline) error {
						later(tx, "UPDATE thing SET other = @id WHERE id = @id", pg.Args{"id": id})
						later(tx, "SELECT set_config('enable_seqscan', 'off', true)", pg.Args{})
						return nil
					})
				}
				var got uuid.UUID
				if err == nil {
					err = pool.QueryRow(t.Context(), "SELECT other FROM thing WHERE id = @id", pg.Args{"id": id}).Scan(&got)
				}
				if err != nil {
					t.Errorf("pg.InTx: %v", err)
					return
				}
				if got != id {
					t.Errorf("got = %v, want %v", got, id)
					return
				}
			}
		})
	}
	all.Wait()
	var left string
	if err := pool.QueryRow(t.Context(), "SELECT current_setting('enable_seqscan')").Scan(&left); err != nil {
		t.Errorf("a transaction left enable_seqscan: QueryRow: %v", err)
	} else if left != "on" {
		t.Errorf(`a transaction left enable_seqscan: left = %q, want "on"`, left)
	}
	want := map[string]string{"search_path": schema, "jit": "off", "statement_timeout": "15s", "idle_in_transaction_session_timeout": "5s", "tcp_user_timeout": "10s"}
	for name, value := range want {
		var got string
		if err := pool.QueryRow(t.Context(), "SELECT concat(setting, unit) FROM pg_settings WHERE name = $1",
			name).Scan(&got); err != nil {
			t.Fatalf("read %s: %v", name, err)
		}
		if strings.HasPrefix(got, "0") {
			continue // a Unix socket has no tcp_user_timeout
		}
		if got = strings.Replace(got, "000ms", "s", 1); got != value {
			t.Errorf("%s = %q, want %q", name, got, value)
		}
	}
}

// The test takes a session's advisory lock. Transactions of the pool use another session, so they
// can neither take nor release this lock.
func TestDedicated_SessionBypassesThePooler(t *testing.T) {
	t.Parallel()
	cfg := pooledConfig(t, pgtest.New(t, schema, track))
	pool, err := pg.Open(t.Context(), cfg, schema, track)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	session, err := pg.Dedicated(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close(t.Context()) }()
	var held, again bool
	var mine, theirs int
	const lock = "SELECT pg_try_advisory_lock(7), pg_backend_pid()"
	if err := session.QueryRow(t.Context(), lock).Scan(&held, &mine); err != nil {
		t.Fatalf("lock: QueryRow: %v", err)
	} else if !held {
		t.Fatal("lock: held = false, want true")
	}
	err = pool.QueryRow(t.Context(), lock).Scan(&again, &theirs)
	if err != nil {
		t.Fatal(err)
	}
	if again {
		t.Errorf("again = true, want false")
	}
	if mine == theirs {
		t.Errorf("mine = %v, want another value", mine)
	}
	if _, err := session.Exec(t.Context(), "LISTEN wake"); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "SELECT pg_notify('wake', '')"); err != nil {
		t.Fatal(err)
	}
	if _, err := session.WaitForNotification(t.Context()); err != nil {
		t.Errorf("a notice through the pooler: %v", err)
	}
}

// A pooler does not pass the parameters of a connection on to the server. So the role must have the
// setting search_path.
func TestOpen_ErrorNamesARoleWithoutSearchPath(t *testing.T) {
	t.Parallel()
	cfg := pooledConfig(t, pgtest.New(t, schema, track))
	_, err := pg.Open(t.Context(), cfg, "another", track)
	if err == nil {
		t.Error("Open: pg.Open = nil, want an error")
	} else if !strings.Contains(err.Error(), "ALTER ROLE another_app SET search_path") {
		t.Errorf(`Open: err = %q, want it to contain "ALTER ROLE another_app SET search_path"`, err.Error())
	}
}
