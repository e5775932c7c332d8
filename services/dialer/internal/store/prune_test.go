package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/store"
)

// The analysis of a call reads the callback time from the leg, and can be delayed. So the leg must
// be kept until the analysis has ended.
func TestPrune_KeepsLegsWhoseAnalysisIsPending(t *testing.T) {
	t.Parallel()
	pool := newLegPool(t)
	waits, analysed := uuid.New(), uuid.New()
	for _, id := range []uuid.UUID{waits, analysed} {
		const ended = `
			INSERT INTO sip_legs (call_id, trunk_id, inbound, from_number, to_number, owner, answered_at, ended_at, callback_at)
			VALUES ($1, $1, false, '', '', $1, now() - interval '2 hours', now() - interval '1 hour', now() + interval '1 day')`
		const call = `
			INSERT INTO calls (call_id, call_request_id, workspace_id, agent_id, direction, from_number, to_e164, status,
				max_call_seconds, deadline_at,
				answered_at, ended_at, analyse_at)
			VALUES ($1, $1, $1, $1, 'outbound', '+15005550006', '+14155550101', 'completed', 60, now(), now(), now(),
				CASE WHEN $2 THEN now() END)`
		if _, err := pool.Exec(t.Context(), ended, id); err != nil {
			t.Fatal(err)
		}
		if _, err := pool.Exec(t.Context(), call, id, id == waits); err != nil {
			t.Fatal(err)
		}
	}
	j := store.NewLegs(pool, pool, uuid.New(), time.Minute)
	if _, err := j.Prune(t.Context(), 10*time.Minute); err != nil {
		t.Fatalf("Prune: %v", err)
	}
	if _, err := j.Find(t.Context(), waits); err != nil {
		t.Errorf("Find the call whose analysis waits = %v, want nil", err)
	}
	if _, err := j.Find(t.Context(), analysed); !errors.Is(err, pg.ErrNotFound) {
		t.Errorf("Find the analysed call = %v, want ErrNotFound", err)
	}
}

func TestPrune_DeletesOldAttempts(t *testing.T) {
	t.Parallel()
	pool := newLegPool(t)
	j := store.NewLegs(pool, pool, uuid.New(), time.Minute)
	const started = `
		INSERT INTO sip_attempts (attempt_id, call_id, trunk_id, trunk, sip_call_id, started_at)
		SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), $1, 'c', now() - $2::interval`
	for name, age := range map[string]time.Duration{"old": 31 * 24 * time.Hour, "new": 29 * 24 * time.Hour} {
		if _, err := pool.Exec(t.Context(), started, name, age); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.Prune(t.Context(), time.Minute); err != nil {
		t.Fatalf("Prune: %v", err)
	}
	var left string
	err := pool.QueryRow(t.Context(), "SELECT coalesce(string_agg(trunk, ' '), '') FROM sip_attempts").Scan(&left)
	if err != nil {
		t.Fatal(err)
	}
	if want := "new"; left != want {
		t.Errorf("attempts after Prune = %q, want %q", left, want)
	}
}
