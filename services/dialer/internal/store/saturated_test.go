package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/services/dialer/internal/store"
)

func TestHeartbeat_SucceedsWhileThePoolIsSaturated(t *testing.T) {
	t.Parallel()
	work := newLegPool(t)
	beats, err := pgxpool.NewWithConfig(t.Context(), work.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(beats.Close)
	for range work.Config().MaxConns {
		conn, err := work.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Release)
	}
	j := store.NewLegs(work, beats, uuid.New(), time.Minute)
	if _, err := j.Heartbeat(t.Context()); err != nil {
		t.Errorf("Heartbeat with a saturated pool = %v, want nil", err)
	}
}

// After an outage of the database, the heartbeats of all live processes are old too.
func TestAdopt_TakesNoLegsDirectlyAfterAFailedHeartbeat(t *testing.T) {
	t.Parallel()
	pool := newLegPool(t)
	const orphan = `INSERT INTO sip_legs (call_id, trunk_id, inbound, from_number, to_number, owner)
		VALUES ($1, $1, false, '', '', $2)`
	if _, err := pool.Exec(t.Context(), orphan, uuid.New(), uuid.New()); err != nil {
		t.Fatal(err)
	}
	j := store.NewLegs(pool, pool, uuid.New(), time.Minute)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := j.Heartbeat(canceled); err == nil {
		t.Fatal("Heartbeat with a canceled context = nil, want an error")
	}
	if _, err := j.Heartbeat(t.Context()); err != nil {
		t.Fatalf("Heartbeat: %v", err)
	}
	adopted, err := j.Adopt(t.Context())
	if err != nil {
		t.Fatalf("Adopt: %v", err)
	}
	if len(adopted) != 0 {
		t.Errorf("calls adopted directly after a failed heartbeat = %d, want 0", len(adopted))
	}
}

// Directly after an outage of the database, the other processes have not sent their next heartbeat
// yet, so they seem to be dead.
func TestAdopt_TakesNoLegsInTheFirstLeaseAfterTheStart(t *testing.T) {
	t.Parallel()
	pool, owner := newLegPool(t), uuid.New()
	const beat = "INSERT INTO sip_leg_owners (owner, seen_at) VALUES ($1, now())"
	if _, err := pool.Exec(t.Context(), beat, owner); err != nil {
		t.Fatal(err)
	}
	const orphan = `INSERT INTO sip_legs (call_id, trunk_id, inbound, from_number, to_number, owner)
		VALUES ($1, $1, false, '', '', $2)`
	if _, err := pool.Exec(t.Context(), orphan, uuid.New(), uuid.New()); err != nil {
		t.Fatal(err)
	}
	j := store.NewLegs(pool, pool, owner, shortLease)
	if got := len(adoptLegs(t, j)); got != 0 {
		t.Errorf("calls adopted before the own heartbeat = %d, want 0", got)
	}
	if _, err := j.Heartbeat(t.Context()); err != nil {
		t.Fatalf("Heartbeat: %v", err)
	}
	if got := len(adoptLegs(t, j)); got != 0 {
		t.Fatalf("calls adopted after the first own heartbeat = %d, want 0", got)
	}
	if got := len(adoptedLegs(t, j)); got != 1 {
		t.Errorf("calls adopted after heartbeats in time for a lease = %d, want 1", got)
	}
}
