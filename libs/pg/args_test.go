package pg_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
)

func TestArgs_GiveTheSameResultsAsPgxNamedArgs(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, schema, track)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	ask := func(sql string, args pgx.QueryRewriter) string {
		var got string
		if err := conn.QueryRow(t.Context(), sql, args).Scan(&got); err != nil {
			return err.Error()
		}
		return got
	}
	for _, row := range []struct {
		name, sql string
		args      pgx.NamedArgs
	}{
		{"one argument", "SELECT @a::text", pgx.NamedArgs{"a": "x"}},
		{"the same statement with another value", "SELECT @a::text", pgx.NamedArgs{"a": "y"}},
		{
			"a name that occurs twice, and an unused argument", "SELECT concat(@b::text, @a::text, @b::text)",
			pgx.NamedArgs{"a": "1", "b": "2", "c": "3"},
		},
		{"a missing argument is NULL", "SELECT coalesce(@a::text, 'none') || @b", pgx.NamedArgs{"b": "2"}},
		{
			"the same statement with the argument", "SELECT coalesce(@a::text, 'none') || @b",
			pgx.NamedArgs{"a": "1", "b": "2"},
		},
		{"the same statement without the argument again", "SELECT coalesce(@a::text, 'none') || @b", pgx.NamedArgs{"b": "2"}},
		{"text that looks like a name", "SELECT '@a' || @a::text -- @a", pgx.NamedArgs{"a": "1"}},
		{"no arguments", "SELECT 'x'", pgx.NamedArgs{}},
	} {
		want := ask(row.sql, row.args)
		for range 2 {
			if got := ask(row.sql, pg.Args(row.args)); got != want {
				t.Errorf("%s: %q, want %q", row.name, got, want)
			}
		}
	}
	batch := &pgx.Batch{}
	var sum int
	for _, args := range []pg.Args{{"n": 1}, {"n": 2}} {
		batch.Queue("SELECT @n::int", args).QueryRow(func(row pgx.Row) error {
			var n int
			defer func() { sum += n }()
			return row.Scan(&n)
		})
	}
	if err := conn.SendBatch(t.Context(), batch).Close(); err != nil {
		t.Errorf("Close: %v", err)
	} else if sum != 3 {
		t.Errorf("sum = %v, want 3", sum)
	}
}

func TestQueries_ReturnRowsOrErrNotFound(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, schema, track)
	type pair struct{ A, B int }
	const (
		pairs  = "SELECT 10 * n AS b, n AS a FROM generate_series(1, @n::int) n ORDER BY n"
		values = "SELECT n FROM generate_series(1, @n::int) n ORDER BY n"
	)
	for n, want := range []error{0: pg.ErrNotFound, 1: nil, 2: pgx.ErrTooManyRows} {
		args := pg.Args{"n": n}
		row, err := pg.One[pair](t.Context(), pool, pairs, args)
		if !errors.Is(err, want) {
			t.Errorf("One of %d rows: error = %v, want %v", n, err, want)
		}
		if want := (pair{1, 10}); err == nil && row != want {
			t.Errorf("One of %d rows = %v, want %v", n, row, want)
		}
		value, err := pg.Value[int](t.Context(), pool, values, args)
		if !errors.Is(err, want) {
			t.Errorf("Value of %d rows: error = %v, want %v", n, err, want)
		}
		if err == nil && value != 1 {
			t.Errorf("Value of %d rows = %d, want 1", n, value)
		}
		rows, err := pg.Many[pair](t.Context(), pool, pairs, args)
		if err != nil {
			t.Errorf("Many of %d rows: error = %v, want nil", n, err)
		}
		if want := []pair{{1, 10}, {2, 20}}[:n]; !slices.Equal(rows, want) {
			t.Errorf("Many of %d rows = %v, want %v", n, rows, want)
		}
		all, err := pg.Values[int](t.Context(), pool, values, args)
		if err != nil {
			t.Errorf("Values of %d rows: error = %v, want nil", n, err)
		}
		if want := []int{1, 2}[:n]; !slices.Equal(all, want) {
			t.Errorf("Values of %d rows = %v, want %v", n, all, want)
		}
	}
}
