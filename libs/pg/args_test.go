package pg_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
)

// TestArgs_AreTheNamedArgsOfPgx holds each answer against pgx's own, the first time and from memory.
func TestArgs_AreTheNamedArgsOfPgx(t *testing.T) {
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
		{"one place", "SELECT @a::text", pgx.NamedArgs{"a": "x"}},
		{"other values", "SELECT @a::text", pgx.NamedArgs{"a": "y"}},
		{
			"a name twice, and one that is not asked for", "SELECT concat(@b::text, @a::text, @b::text)",
			pgx.NamedArgs{"a": "1", "b": "2", "c": "3"},
		},
		{"a name without a value is null", "SELECT coalesce(@a::text, 'none') || @b", pgx.NamedArgs{"b": "2"}},
		{"and has one the next time", "SELECT coalesce(@a::text, 'none') || @b", pgx.NamedArgs{"a": "1", "b": "2"}},
		{"and none again", "SELECT coalesce(@a::text, 'none') || @b", pgx.NamedArgs{"b": "2"}},
		{"text that looks like a name", "SELECT '@a' || @a::text -- @a", pgx.NamedArgs{"a": "1"}},
		{"no names", "SELECT 'x'", pgx.NamedArgs{}},
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

// TestOne_IsOneRowByItsColumnsNames, and Many are all of them in their order.
func TestOne_IsOneRowByItsColumnsNames(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, schema, track)
	type pair struct{ A, B int }
	const upTo = "SELECT 10 * n AS b, n AS a FROM generate_series(1, @n::int) n ORDER BY n"
	for n, want := range []error{0: pgx.ErrNoRows, 1: nil, 2: pgx.ErrTooManyRows} {
		got, err := pg.One[pair](t.Context(), pool, upTo, pgx.NamedArgs{"n": n})
		if !errors.Is(err, want) {
			t.Errorf("error = %v, want %v; n = %d", err, want, n)
		} else if err == nil && got != (pair{1, 10}) {
			t.Errorf("got = %v, want %v; n = %d", got, pair{1, 10}, n)
		}
		all, err := pg.Many[pair](t.Context(), pool, upTo, pgx.NamedArgs{"n": n})
		if want := []pair{{1, 10}, {2, 20}}[:n]; err != nil {
			t.Errorf("error = %v, want nil", err)
		} else if !slices.Equal(all, want) {
			t.Errorf("all = %v, want %v; n = %d", all, want, n)
		}
	}
}
