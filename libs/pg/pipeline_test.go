package pg_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
)

const (
	addSerial = `INSERT INTO serial (v) VALUES (@v)`
	addThing  = `INSERT INTO thing (id) VALUES (@id)`
)

func serials(t *testing.T, pool *pgxpool.Pool) (list []int32) {
	t.Helper()
	rows, err := pool.Query(t.Context(), "SELECT v FROM serial ORDER BY id")
	if err == nil {
		list, err = pgx.CollectRows(rows, pgx.RowTo[int32])
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func later(tx *pg.Pipeline, sql string, args pg.Args) {
	batch := &pgx.Batch{}
	batch.Queue(sql, args)
	tx.QueueBatch(batch)
}

func TestInPipeline_StatementsRunInOrderAndCommit(t *testing.T) {
	t.Parallel()
	pool, ctx := pgtest.New(t, schema, track), t.Context()
	var did int64
	err := pg.InPipeline(ctx, pool, func(tx *pg.Pipeline) error {
		batch := &pgx.Batch{}
		batch.Queue(addSerial, pg.Args{"v": 1}).Exec(func(tag pgconn.CommandTag) error {
			did = tag.RowsAffected()
			return nil
		})
		tx.QueueBatch(batch)
		if _, err := tx.Exec(ctx, "INSERT INTO serial (v) VALUES (2)"); err != nil {
			return err
		}
		later(tx, addSerial, pg.Args{"v": 3})
		var n int
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM serial").Scan(&n); err != nil {
			t.Errorf("seen inside: QueryRow: %v", err)
		} else if n != 3 {
			t.Errorf("seen inside: n = %v, want 3", n)
		}
		later(tx, addSerial, pg.Args{"v": 4})
		return nil
	})
	if err != nil {
		t.Fatalf("pg.InPipeline: %v", err)
	}
	if did != 1 {
		t.Fatalf("did = %v, want 1", did)
	}
	if got, want := serials(t, pool), []int32{1, 2, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("rows = %v, want %v", got, want)
	}
}

func TestInPipeline_ErrorRollsBack(t *testing.T) {
	t.Parallel()
	pool, ctx := pgtest.New(t, schema, track), t.Context()
	twice := uuid.Must(uuid.NewV7())
	boom := errors.New("boom")
	for name, f := range map[string]func(*pg.Pipeline) error{
		"an error of the function": func(tx *pg.Pipeline) error {
			if _, err := tx.Exec(ctx, addSerial, pg.Args{"v": 1}); err != nil {
				return err
			}
			return boom
		},
		"an error before a statement was sent": func(tx *pg.Pipeline) error {
			later(tx, addSerial, pg.Args{"v": 1})
			return boom
		},
		"an error of a statement that was queued last": func(tx *pg.Pipeline) error {
			later(tx, addSerial, pg.Args{"v": 1})
			later(tx, addThing, pg.Args{"id": twice})
			later(tx, addThing, pg.Args{"id": twice})
			return nil
		},
		"a queued statement, before another": func(tx *pg.Pipeline) error {
			later(tx, addThing, pg.Args{"id": twice})
			later(tx, addThing, pg.Args{"id": twice})
			return tx.QueryRow(ctx, "SELECT 1").Scan(new(int))
		},
		"a statement that went before": func(tx *pg.Pipeline) error {
			_, _ = tx.Exec(ctx, "SELECT 1/0")
			later(tx, addSerial, pg.Args{"v": 1})
			return nil
		},
	} {
		if err := pg.InPipeline(ctx, pool, f); err == nil {
			t.Errorf("%s: no error", name)
		}
		if got := serials(t, pool); len(got) != 0 {
			t.Errorf("%s: rows = %v, want none", name, got)
		}
		if n := pool.Stat().TotalConns(); n != 1 {
			t.Errorf("%s: %d connections, want the one from before", name, n)
		}
	}
}

func TestInPipeline_CommitOfAFailedTransactionIsAnError(t *testing.T) {
	t.Parallel()
	pool, ctx := pgtest.New(t, schema, track), t.Context()
	err := pg.InPipeline(ctx, pool, func(tx *pg.Pipeline) error {
		_, _ = tx.Exec(ctx, addSerial, pg.Args{"v": 1})
		_, _ = tx.Exec(ctx, "SELECT 1/0")
		return nil
	})
	if err == nil {
		t.Error("a transaction that Postgres took back counts as committed")
	}
}

func TestInPipeline_RepeatsTheTransactionAfterAConflict(t *testing.T) {
	t.Parallel()
	pool, tries := pgtest.New(t, schema, track), 0
	err := pg.InPipeline(t.Context(), pool, func(tx *pg.Pipeline) error {
		tries++
		later(tx, addSerial, pg.Args{"v": tries})
		if tries == 1 {
			return &pgconn.PgError{Code: "40P01"}
		}
		return nil
	})
	got := serials(t, pool)
	if err != nil {
		t.Fatal(err)
	}
	if tries != 2 {
		t.Errorf("tries = %v, want 2", tries)
	}
	if len(got) != 1 {
		t.Fatalf("length of got = %v, want 1", len(got))
	}
	if got[0] != 2 {
		t.Errorf("got[0] = %v, want 2", got[0])
	}
}

func TestInPipeline_CanceledContextRollsBack(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, schema, track)
	ctx, cancel := context.WithCancel(t.Context())
	err := pg.InPipeline(ctx, pool, func(tx *pg.Pipeline) error {
		if _, err := tx.Exec(ctx, addSerial, pg.Args{"v": 1}); err != nil {
			return err
		}
		cancel()
		return ctx.Err()
	})
	if err == nil {
		t.Error("no error")
	}
	if got := serials(t, pool); len(got) != 0 {
		t.Errorf("rows = %v, want none", got)
	}
}
