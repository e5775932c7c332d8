package dial_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/dialer/internal/dial"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/simcarrier"
	"ringfence.dev/services/dialer/internal/store"
)

type queryCounter struct{ statements, batches atomic.Int64 }

func (a *queryCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	a.statements.Add(1)
	return ctx
}

func (a *queryCounter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	a.batches.Add(1)
	return ctx
}

func (*queryCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (*queryCounter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*queryCounter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func TestRun_SearchesTheQueueOnceASecondWhileNothingIsDue(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(
		t,
		"dialer",
		outbox.Migrations,
		inbox.Migrations,
		pg.Migrations{Name: "dialer", FS: store.Migrations},
	)
	for n := range 100 {
		_, err := pool.Exec(
			t.Context(),
			`INSERT INTO dial_queue (call_request_id, workspace_id, state, to_e164, agent_id, queued_at, due_at, look_at, held)
			VALUES (gen_random_uuid(), gen_random_uuid(), 'queued', $1, gen_random_uuid(), now(), now() + interval '1 hour', now() + interval '1 hour', $2)`,
			fmt.Sprintf("+1415555%04d", n),
			n%2 == 0,
		)
		if err != nil {
			t.Fatal(err)
		}
	}
	settings, seen := pool.Config(), &queryCounter{}
	settings.ConnConfig.Tracer = seen
	counted, err := pgxpool.NewWithConfig(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(counted.Close)
	st := store.New(
		counted,
		uuid.Must(uuid.NewV7()),
		store.Timing{ClaimLease: time.Minute, QueueLimit: time.Hour, CapacityLimit: time.Hour},
	)
	limit := dialqueue.Limit{Live: 10, PerSecond: 10}
	d := dial.New(st, nil, simcarrier.New(simcarrier.Config{URL: "http://127.0.0.1:1"}), nil, nil, &recordedIntents{},
		dial.Limits{
			Attempts: 5, Overall: limit, OfTrunk: func(context.Context) (dialqueue.Limit, error) { return limit, nil },
			Failures: 5, CircuitRest: time.Second,
		}, prometheus.NewRegistry())
	ctx, stop := context.WithCancel(t.Context())
	done, start := make(chan error, 1), time.Now()
	go func() { done <- d.Run(ctx) }()
	testkit.Until(t, "the queue is read four times", func() bool { return seen.batches.Load() >= 4 })
	took := time.Since(start)
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if took < 2900*time.Millisecond {
		t.Errorf("time of four searches = %s, want at least 2.9 s", took)
	}
	if n := seen.statements.Load(); n > 1 { // one statement is permitted: Run calls ReturnStrays
		t.Errorf("statements other than searches = %d, want at most 1", n)
	}
}
