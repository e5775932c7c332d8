package journal_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/services/dialer/internal/store/journal"
)

func TestBeat_WhileThePoolIsSaturated(t *testing.T) {
	t.Parallel()
	work := newPool(t)
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
	j := journal.New(work, beats, uuid.New(), time.Minute)
	if _, err := j.Beat(t.Context()); err != nil {
		t.Errorf("Beat with a saturated pool = %v, want nil", err)
	}
}

// TestAdopt_OnlyAfterOwnHeartbeat covers a process that has not stored a heartbeat itself: it
// adopts nothing, although its row is fresh.
func TestAdopt_OnlyAfterOwnHeartbeat(t *testing.T) {
	t.Parallel()
	pool, owner := newPool(t), uuid.New()
	if _, err := pool.Exec(t.Context(), "INSERT INTO sip_owners (owner, seen_at) VALUES ($1, now())", owner); err != nil {
		t.Fatal(err)
	}
	const orphan = `INSERT INTO sip_calls (call_id, trunk_id, inbound, from_number, to_number, owner)
		VALUES ($1, $1, false, '', '', $2)`
	if _, err := pool.Exec(t.Context(), orphan, uuid.New(), uuid.New()); err != nil {
		t.Fatal(err)
	}
	j := journal.New(pool, pool, owner, time.Minute)
	before, err := j.Adopt(t.Context())
	if err != nil {
		t.Fatalf("Adopt: %v", err)
	}
	if len(before) != 0 {
		t.Errorf("calls adopted before the own heartbeat = %d, want 0", len(before))
	}
	if _, err := j.Beat(t.Context()); err != nil {
		t.Fatalf("Beat: %v", err)
	}
	after, err := j.Adopt(t.Context())
	if err != nil {
		t.Fatalf("Adopt: %v", err)
	}
	if len(after) != 1 {
		t.Errorf("calls adopted after the own heartbeat = %d, want 1", len(after))
	}
}
