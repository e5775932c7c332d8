package pgtest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
)

// The two kinds of plans of a prepared statement: generic for all values, or custom for the given
// values. Postgres can use either kind for the statements that pgx prepares.
const (
	GenericPlan = "force_generic_plan"
	CustomPlan  = "force_custom_plan"
)

// Watched records the statements with arguments that run in a pool, so that a test can check their
// plans.
type Watched struct {
	pool *pgxpool.Pool
	last []statement
}

type statement struct {
	sql  string
	args pgx.NamedArgs
	// settings contains the statements without arguments that precede this statement in its batch,
	// because they can set parameters of the planner.
	settings []string
}

// Watch returns a second pool on the same database, and a Watched that records the statements of
// that pool. The pool accepts only named arguments.
func Watch(t testing.TB, pool *pgxpool.Pool) (*pgxpool.Pool, *Watched) {
	t.Helper()
	settings, watched := pool.Config(), &Watched{pool: pool}
	settings.ConnConfig.Tracer, settings.MaxConns = watched, 1
	again, err := pgxpool.NewWithConfig(t.Context(), settings)
	if err != nil {
		t.Fatalf("open watched pool: %v", err)
	}
	t.Cleanup(func() { closeSoon(again) })
	return again, watched
}

// TraceQueryStart implements pgx.QueryTracer.
func (w *Watched) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if len(q.Args) > 0 {
		switch args := q.Args[len(q.Args)-1].(type) {
		case pgx.NamedArgs:
			w.last = append(w.last, statement{sql: q.SQL, args: args})
		case pg.Args:
			w.last = append(w.last, statement{sql: q.SQL, args: pgx.NamedArgs(args)})
		}
	}
	return ctx
}

// TraceBatchStart implements pgx.BatchTracer.
func (w *Watched) TraceBatchStart(ctx context.Context, _ *pgx.Conn, of pgx.TraceBatchStartData) context.Context {
	var settings []string
	for _, q := range of.Batch.QueuedQueries {
		if len(q.Arguments) == 0 {
			settings = append(settings, q.SQL)
		} else if args, ok := q.Arguments[0].(pg.Args); ok {
			w.last = append(w.last, statement{q.SQL, pgx.NamedArgs(args), settings})
		}
	}
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (*Watched) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (*Watched) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// TraceQueryEnd implements pgx.QueryTracer.
func (*Watched) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Pages returns the number of database pages that the recorded statements read, and their plans. It
// runs all these statements again with the given kind of plan.
func (w *Watched) Pages(t testing.TB, mode string) (pages int, plans string) {
	t.Helper()
	for _, s := range w.last {
		n, plan, err := s.explain(t.Context(), w.pool, mode)
		if err != nil {
			t.Fatalf("explain %s: %v", s.sql, err)
		}
		pages += n
		plans += s.sql + "\n" + plan + "\n"
	}
	return pages, plans
}

// Forget removes the recorded statements.
func (w *Watched) Forget() { w.last = nil }

func (s statement) explain(ctx context.Context, pool *pgxpool.Pool, mode string) (pages int, plan string, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		sql, args, err := s.args.RewriteQuery(ctx, tx.Conn(), s.sql, nil)
		if err != nil {
			return err
		}
		for _, sql := range append(slices.Clone(s.settings), "SET LOCAL plan_cache_mode = "+mode, "PREPARE watched AS "+sql) {
			if _, err := tx.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
		}
		defer func() { _, _ = tx.Exec(ctx, "DEALLOCATE watched") }()
		places := make([]string, len(args))
		for i, arg := range args {
			places[i] = fmt.Sprintf("$%d", i+1)
			// Encode the ids as text, because the simple protocol does not encode arrays of
			// uuid.UUID.
			if ids, ok := arg.([]uuid.UUID); ok {
				args[i] = uuid.UUIDs(ids).Strings()
			}
		}
		explain := "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE watched"
		if len(places) > 0 {
			explain += " (" + strings.Join(places, ", ") + ")"
		}
		return tx.QueryRow(ctx, explain, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...).Scan(&plan)
	})
	if err != nil {
		return 0, "", err
	}
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal([]byte(plan), &plans); err != nil {
		return 0, "", err
	}
	return plans[0].Plan.Hit + plans[0].Plan.Read, plan, nil
}
