package pg_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
)

// lockedRow inserts a row and returns a transaction that has locked the row.
func lockedRow(t *testing.T) (pool *pgxpool.Pool, id uuid.UUID, tx pgx.Tx) {
	t.Helper()
	pool, id = pgtest.New(t, schema, track), uuid.New()
	if _, err := pool.Exec(t.Context(), "INSERT INTO thing (id) VALUES ($1)", id); err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "UPDATE thing SET other = id WHERE id = $1", id); err != nil {
		t.Fatal(err)
	}
	return pool, id, tx
}

// changeRow changes the row. It fails if another transaction keeps the row locked for longer than
// the statement timeout.
func changeRow(t *testing.T, pool *pgxpool.Pool, id uuid.UUID) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), "UPDATE thing SET at = now() WHERE id = $1", id); err != nil {
		t.Errorf("change the row that another transaction had locked: %v", err)
	}
}

func TestOpen_SessionsHaveTimeoutsForHangingClients(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, schema, track)
	tests := []struct{ name, want string }{
		{name: "idle_in_transaction_session_timeout", want: "5000ms"},
		{name: "tcp_user_timeout", want: "10000ms"},
	}
	for _, tt := range tests {
		var got string
		if err := pool.QueryRow(t.Context(), "SELECT concat(setting, unit) FROM pg_settings WHERE name = $1",
			tt.name).Scan(&got); err != nil {
			t.Fatalf("read %s: %v", tt.name, err)
		}
		if tt.name == "tcp_user_timeout" && got == "0ms" {
			continue // a Unix socket has no tcp_user_timeout
		}
		if got != tt.want {
			t.Errorf("%s = %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestOpen_EndsTransactionsOfHangingClients(t *testing.T) {
	t.Parallel()
	pool, id, tx := lockedRow(t)
	if _, err := tx.Exec(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = '100ms'"); err != nil {
		t.Fatal(err)
	}
	changeRow(t, pool, id)
	if err := tx.Commit(t.Context()); !pg.IsDown(err) {
		t.Errorf("commit of the one that hung: %v, want an outage", err)
	}
}
