package summary_test

import (
	"context"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/internal/summary"
)

type endpoint struct {
	summarise func(ctx context.Context, c summary.Call) (*agent.Summary, error)
	mu        sync.Mutex
	asked     []summary.Call
}

func (e *endpoint) Summarise(ctx context.Context, c summary.Call) (*agent.Summary, error) {
	e.mu.Lock()
	e.asked = append(e.asked, c)
	e.mu.Unlock()
	return e.summarise(ctx, c)
}

type oneKey struct{}

func (oneKey) Key(context.Context, uuid.UUID, uuid.UUID) (string, error) {
	return "the agent's own", nil
}

func ended(t *testing.T, pool *pgxpool.Pool, workspace uuid.UUID, settings, outcome string) uuid.UUID {
	t.Helper()
	call := uuid.Must(uuid.NewV7())
	const agents = `INSERT INTO agents (agent_id, workspace_id, version, name, from_e164, max_call_seconds, settings, deleted) VALUES ($1, $2, 1, 'Ada', '', 60, $3, false)`
	const calls = `
		INSERT INTO calls (call_id, call_request_id, workspace_id, agent_id, direction, from_number, to_e164, status, max_call_seconds, deadline_at, answered_at, ended_at, outcome, disposition, analyse_at, time_zone, turns)
		VALUES ($1, $1, $2, $1, 'outbound', '+15005550006', '+14155550101', 'completed', 60, now(), now(), now(), $3, 'human', now(), 'Asia/Tokyo', '[{"role":"person","text":"hello","at":"2026-11-21T12:00:00Z"}]')`
	if _, err := pool.Exec(t.Context(), agents, call, workspace, settings); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), calls, call, workspace, outcome); err != nil {
		t.Fatal(err)
	}
	return call
}

func analysed(t *testing.T, pool *pgxpool.Pool, call uuid.UUID) {
	t.Helper()
	testkit.Until(t, "the call is analysed", func() bool {
		var done bool
		err := pool.QueryRow(t.Context(), "SELECT analyse_at IS NULL FROM calls WHERE call_id = $1", call).Scan(&done)
		if err != nil {
			t.Fatal(err)
		}
		return done
	})
}

func run(t *testing.T, pool *pgxpool.Pool, e *endpoint) {
	t.Helper()
	a := summary.NewAnalyser(store.New(pool, uuid.New(), store.Timing{}), oneKey{}, e, nil)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = a.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
}

func newPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return pgtest.New(
		t,
		"dialer",
		outbox.Migrations,
		inbox.Migrations,
		pg.Migrations{Name: "dialer", FS: store.Migrations},
	)
}

// The endpoint of one workspace does not respond. The calls of other workspaces must be summarised
// anyway.
func TestRun_HangingEndpointDelaysOnlyItsWorkspace(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	for range 20 {
		ended(t, pool, uuid.New(), `{"instructions":"hang"}`, "unknown")
	}
	hanging := make(chan struct{}, 20)
	run(t, pool, &endpoint{summarise: func(ctx context.Context, c summary.Call) (*agent.Summary, error) {
		if c.Settings.Instructions != "hang" {
			return &agent.Summary{Outcome: agent.OutcomeInterested}, nil
		}
		hanging <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	for range 20 {
		<-hanging
	}
	analysed(t, pool, ended(t, pool, uuid.New(), `{}`, "unknown"))
}

// At most a quarter of the concurrent analyses may belong to one workspace. When one of them has
// ended, the next one must start.
func TestRun_OneWorkspaceGetsAtMostAQuarterOfTheAnalyses(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	const quarter = 32
	var calls []uuid.UUID
	for workspace := uuid.New(); len(calls) < 2*quarter; {
		calls = append(calls, ended(t, pool, workspace, `{"instructions":"hang"}`, "unknown"))
	}
	begun, over := make(chan struct{}, len(calls)), make(chan struct{})
	run(t, pool, &endpoint{summarise: func(ctx context.Context, c summary.Call) (*agent.Summary, error) {
		if c.Settings.Instructions == "hang" {
			begun <- struct{}{}
			select {
			case <-over:
			case <-ctx.Done():
			}
		}
		return nil, ctx.Err()
	}})
	for range quarter {
		<-begun
	}
	for range 2 {
		analysed(t, pool, ended(t, pool, uuid.New(), `{}`, "unknown"))
	}
	var claimed int
	if err := pool.QueryRow(t.Context(),
		"SELECT count(*) FROM calls WHERE analyses > 0 AND analyse_at IS NOT NULL").Scan(&claimed); err != nil {
		t.Errorf("QueryRow: %v", err)
	} else if claimed != quarter {
		t.Errorf("claimed = %v, want %v", claimed, quarter)
	}
	close(over)
	for _, call := range calls {
		analysed(t, pool, call)
	}
}

func TestRun_PassesKeyAndOutcomeToTheSummary(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ settings, outcome, key, settled string }{
		"agent of a model: key and outcome are passed": {
			`{"kind":"openai_realtime"}`, "interested", "the agent's own", "interested",
		},
		"outcome unknown: no outcome is passed": {`{"kind":"openai_realtime"}`, "unknown", "the agent's own", ""},
		"media_ws agent: no key is passed": {
			`{"kind":"media_ws","media_url":"wss://a.example"}`, "interested", "", "interested",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			call := ended(t, pool, uuid.New(), test.settings, test.outcome)
			e := &endpoint{summarise: func(context.Context, summary.Call) (*agent.Summary, error) { return nil, nil }}
			run(t, pool, e)
			analysed(t, pool, call)
			e.mu.Lock()
			defer e.mu.Unlock()
			switch {
			case len(e.asked) != 1:
				t.Errorf("length of e.asked = %v, want 1", len(e.asked))
			case e.asked[0].Key != test.key:
				t.Errorf("e.asked[0].Key = %v, want %v", e.asked[0].Key, test.key)
			case e.asked[0].Outcome != test.settled:
				t.Errorf("e.asked[0].Outcome = %v, want %v", e.asked[0].Outcome, test.settled)
			case e.asked[0].Zone.String() != "Asia/Tokyo":
				t.Errorf(`e.asked[0].Zone.String() = %v, want "Asia/Tokyo"`, e.asked[0].Zone.String())
			}
		})
	}
}
