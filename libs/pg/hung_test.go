package pg_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/pgtest"
	"ringfence.dev/libs/stopwatch"
)

// aThing is a row that somebody has locked and will not let go of.
func aThing(t *testing.T) (pool *pgxpool.Pool, id uuid.UUID, tx pgx.Tx) {
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

// change waits for the row.
func change(t *testing.T, pool *pgxpool.Pool, id uuid.UUID, within time.Duration) {
	t.Helper()
	watch := stopwatch.Start(t.Context())
	if _, err := pool.Exec(t.Context(), "UPDATE thing SET at = now() WHERE id = $1", id); err != nil {
		t.Errorf("change the row that another had locked, after %s: %v", watch.Took(), err)
	}
	if took := watch.Took(); took > within {
		t.Errorf("waited %s for the row, want at most %s", took, within)
	}
}

func TestOpen_TransactionThatHangsHoldsOthersForSeconds(t *testing.T) {
	t.Parallel()
	pool, id, tx := aThing(t)
	change(t, pool, id, 8*time.Second)
	if err := tx.Commit(t.Context()); !pg.IsDown(err) {
		t.Errorf("commit of the one that hung: %v, want an outage", err)
	}
}
