package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

type costSide struct {
	name      string
	pool      *pgxpool.Pool
	st        *store.Store
	workspace uuid.UUID
	number    int
	took      []time.Duration
}

// BenchmarkClaim measures claims of one due request in four queues:
//   - "few": 1,000 scheduled requests of 100 workspaces.
//   - "spread": 1,000,000 scheduled requests of 100 workspaces.
//   - "own": 1,000,000 scheduled requests of the same workspace as the claimed request.
//   - "other": 1,000,000 scheduled requests of another workspace than the claimed request.
//
// `make bench ARGS='-only claims'` runs the benchmark on a Postgres with durable commits.
func BenchmarkClaim(b *testing.B) {
	few, hundred := newCostSide(b, "few", 1_000, 100)
	spread, _ := newCostSide(b, "spread", 1_000_000, 100)
	own, one := newCostSide(b, "own", 1_000_000, 1)
	other := &costSide{name: "other", pool: own.pool, st: own.st, workspace: uuid.Must(uuid.NewV7()), number: own.number + 1_000_000}
	few.workspace, spread.workspace, own.workspace = hundred[7], hundred[7], one[0]
	sides := []*costSide{few, spread, other, own}
	for _, side := range sides {
		side.unlimited(b)
		for range 20 { // open connections and prepare statements before the measurement
			side.claimOne(b)
		}
		side.took = nil
	}
	for b.Loop() {
		for _, side := range sides {
			side.claimOne(b)
		}
		sides = append(sides[1:], sides[0])
	}
	for _, side := range sides {
		slices.Sort(side.took)
		at := func(q float64) float64 {
			return float64(side.took[int(q*float64(len(side.took)-1))].Microseconds()) / 1000
		}
		b.ReportMetric(at(0.5), side.name+"-p50-ms")
		b.ReportMetric(at(0.99), side.name+"-p99-ms")
		b.ReportMetric(float64(side.pages(b)), side.name+"-pages")
	}
}

func newCostSide(b *testing.B, name string, rows, workspaces int) (side *costSide, ids []uuid.UUID) {
	b.Helper()
	pool := pgtest.New(b, "dialer", outbox.Migrations, inbox.Migrations, pg.Migrations{Name: "dialer", FS: store.Migrations})
	st := store.New(pool, uuid.Must(uuid.NewV7()), store.Timing{ClaimLease: time.Minute, QueueLimit: 24 * time.Hour, CapacityLimit: 24 * time.Hour})
	for n := range workspaces {
		ids = append(ids, uuid.NewSHA1(uuid.Nil, fmt.Appendf(nil, "workspace %d", n)))
	}
	agent := uuid.Must(uuid.NewV7())
	columns := []string{"call_request_id", "workspace_id", "state", "to_e164", "agent_id", "max_call_seconds", "queued_at", "due_at", "look_at", "traceparent"}
	now, atOnce := time.Now(), min(rows, 50_000)
	for first := 0; first < rows; first += atOnce {
		source := pgx.CopyFromSlice(atOnce, func(i int) ([]any, error) {
			id, err := uuid.NewV7()
			due := now.Add(24*time.Hour + rand.N(30*24*time.Hour))
			n := first + i
			return []any{
				id, ids[n%workspaces], "queued", fmt.Sprintf("+1415%07d", n), agent, int32(600), now, due, due,
				"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
			}, err
		})
		if _, err := pool.CopyFrom(b.Context(), pgx.Identifier{"dial_queue"}, columns, source); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := pgtest.Super(b, pool, "dialer").Exec(b.Context(), "VACUUM ANALYZE dial_queue"); err != nil {
		b.Fatal(err)
	}
	return &costSide{name: name, pool: pool, st: st, number: 5_000_000}, ids
}

func (s *costSide) unlimited(b *testing.B) {
	b.Helper()
	err := pgx.BeginFunc(b.Context(), s.pool, func(tx pgx.Tx) error {
		return s.st.SaveWorkspace(b.Context(), tx, dialqueue.Workspace{
			WorkspaceID: s.workspace, Version: 1, Status: "active", APIEnabled: true, MaxLiveCalls: 100_000, CallsPerSecond: 100_000,
		})
	})
	if err != nil {
		b.Fatal(err)
	}
}

func (s *costSide) enqueue(b *testing.B) {
	b.Helper()
	s.number++
	err := pgx.BeginFunc(b.Context(), s.pool, func(tx pgx.Tx) error {
		_, err := s.st.Enqueue(b.Context(), tx, aRequest(s.workspace, s.number))
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
}

func (s *costSide) claimOne(b *testing.B) {
	b.Helper()
	s.enqueue(b)
	began := time.Now()
	claimed, err := s.st.Claim(b.Context(), ampleCapacity(64), []uuid.UUID{s.workspace})
	s.took = append(s.took, time.Since(began))
	if err != nil {
		b.Fatalf("%s: Claim: %v", s.name, err)
	}
	if len(claimed.Requests) != 1 {
		b.Fatalf("%s: length of claimed.Requests = %d, want 1", s.name, len(claimed.Requests))
	}
	if err := s.st.Block(b.Context(), claimed.Requests[0], dialqueue.Refusal{Code: dialqueue.CodeOutsideHours, Detail: "No."}); err != nil {
		b.Fatal(err)
	}
}

func (s *costSide) pages(b *testing.B) (most int) {
	b.Helper()
	watchedPool, seen := pgtest.Watch(b, s.pool)
	defer watchedPool.Close()
	watched := *s
	watched.st = store.New(
		watchedPool,
		uuid.Must(uuid.NewV7()),
		store.Timing{ClaimLease: time.Minute, QueueLimit: 24 * time.Hour, CapacityLimit: 24 * time.Hour},
	)
	for _, mode := range []string{pgtest.GenericPlan, pgtest.CustomPlan} {
		for range 20 { // enough requests for all repetitions of the claim
			s.enqueue(b)
		}
		seen.Forget()
		if claimed, err := watched.st.Claim(b.Context(), ampleCapacity(1), []uuid.UUID{s.workspace}); err != nil {
			b.Fatalf("%s: Claim: %v", s.name, err)
		} else if len(claimed.Requests) != 1 {
			b.Fatalf("%s: length of claimed.Requests = %d, want 1", s.name, len(claimed.Requests))
		}
		n, plans := seen.Pages(b, mode)
		if n == 0 {
			b.Fatal("Pages: n = 0, want more")
		}
		if !strings.Contains(plans, "SKIP LOCKED") {
			b.Fatalf(`Pages: plans = %q, want it to contain "SKIP LOCKED"`, plans)
		}
		most = max(most, n)
	}
	return most
}
