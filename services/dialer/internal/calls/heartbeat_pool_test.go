package calls

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/store"
)

func openPools(t *testing.T) (work, beats *pgxpool.Pool) {
	t.Helper()
	work = pgtest.New(
		t,
		"dialer",
		outbox.Migrations,
		inbox.Migrations,
		pg.Migrations{Name: "dialer", FS: store.Migrations},
	)
	beats, err := pgxpool.NewWithConfig(t.Context(), work.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(beats.Close)
	return work, beats
}

func saturate(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for range pool.Config().MaxConns {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Release)
	}
}

func TestHeartbeat_IsSentWhileTheWorkPoolIsSaturated(t *testing.T) {
	t.Parallel()
	work, beats := openPools(t)
	st := store.New(work, uuid.Must(uuid.NewV7()), store.Timing{InstanceLease: time.Minute})
	heartbeat := NewHeartbeat(st.On(beats), time.Minute)
	saturate(t, work)
	if err := heartbeat.Send(t.Context()); err != nil {
		t.Errorf("Send with a saturated pool = %v, want nil", err)
	}
}

func TestTakeOver_NeedsHealthyHeartbeats(t *testing.T) {
	t.Parallel()
	work, beats := openPools(t)
	own, dead, lease := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7()), time.Minute
	st := store.New(work, own, store.Timing{InstanceLease: lease})
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := work.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec("INSERT INTO instances (instance_id, steady_since) VALUES ($1, now() - interval '1 hour')", own)
	exec(`INSERT INTO calls (call_id, call_request_id, workspace_id, direction, from_number, to_e164, agent_id, status,
		max_call_seconds, deadline_at, owner)
		VALUES ($1, $1, $1, 'outbound', '+15005550006', '+14155550101', $1, 'in_progress', 60, now() + interval '1 hour',
			$2)`, uuid.New(), dead)
	heartbeat := NewHeartbeat(st.On(beats), lease)
	r := NewRecoverer(st, heartbeat, carrier.Carriers{}, nil, prometheus.NewRegistry())
	owner := func() (id uuid.UUID) {
		t.Helper()
		if err := work.QueryRow(t.Context(), "SELECT owner FROM calls").Scan(&id); err != nil {
			t.Fatal(err)
		}
		return id
	}

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := heartbeat.Send(canceled); err == nil {
		t.Fatal("Send with a canceled context = nil, want an error")
	}
	if err := r.takeOver(t.Context()); err != nil {
		t.Fatalf("takeOver: %v", err)
	}
	if got := owner(); got != dead {
		t.Errorf("owner after a failed heartbeat = %s, want %s: the call is left alone", got, dead)
	}
	if err := heartbeat.Send(t.Context()); err != nil {
		t.Fatalf("Send: %v", err)
	}
	if err := r.takeOver(t.Context()); err != nil {
		t.Fatalf("takeOver: %v", err)
	}
	if got := owner(); got != dead {
		t.Errorf(
			"owner after the first heartbeat that follows a failure = %s, want %s: the call is left alone",
			got,
			dead,
		)
	}

	const short = 500 * time.Millisecond
	r.heartbeat = NewHeartbeat(st.On(beats), short)
	if err := r.heartbeat.Send(t.Context()); err != nil {
		t.Fatalf("Send: %v", err)
	}
	if err := r.takeOver(t.Context()); err != nil {
		t.Fatalf("takeOver: %v", err)
	}
	if got := owner(); got != dead {
		t.Errorf("owner after the first heartbeat of a process = %s, want %s: the call is left alone", got, dead)
	}
	testkit.Until(t, "the heartbeats have been in time for a lease", func() bool {
		if err := r.heartbeat.Send(t.Context()); err != nil {
			t.Fatalf("Send: %v", err)
		}
		return r.heartbeat.Healthy()
	})
	if err := r.takeOver(t.Context()); err != nil {
		t.Fatalf("takeOver: %v", err)
	}
	if got := owner(); got != own {
		t.Errorf("owner after heartbeats in time for a lease = %s, want %s", got, own)
	}
}
