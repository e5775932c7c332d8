package store_test

import (
	"testing"
	"time"

	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/gateway/internal/ratelimit"
	"ringfence.dev/services/gateway/internal/store"
)

func TestCountRequest_UsesTheTimeAfterWaitingForTheLock(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, store.Schema, outbox.Migrations, pg.Migrations{Name: store.Schema, FS: store.Migrations})
	st := store.New(pool, nil)
	const policy ratelimit.Policy = 2
	if _, err := st.CountRequest(t.Context(), "k", policy); err != nil {
		t.Fatal(err)
	}
	faster, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = faster.Rollback(t.Context()) }()
	if _, err := faster.Exec(t.Context(), `UPDATE rate_limits SET tat = now() WHERE key = 'k'`); err != nil {
		t.Fatal(err)
	}
	waited := make(chan ratelimit.Status, 1)
	go func() {
		status, err := st.CountRequest(t.Context(), "k", policy)
		if err != nil {
			t.Error(err)
		}
		waited <- status
	}()
	for blocked := 0; blocked == 0; {
		const lookForIt = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
		if err := pool.QueryRow(t.Context(), lookForIt).Scan(&blocked); err != nil {
			t.Fatal(err)
		}
	}
	// This update simulates a request that is counted while another request waits for the lock.
	if _, err := faster.Exec(t.Context(), `UPDATE rate_limits SET tat = clock_timestamp() + $1::interval WHERE key = 'k'`, policy.Step()); err != nil {
		t.Fatal(err)
	}
	if err := faster.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := <-waited
	if !second.Allowed {
		t.Errorf("the second of two: second.Allowed = false, want true")
	}
	if second.Remaining != 0 {
		t.Errorf("the second of two: second.Remaining = %v, want 0", second.Remaining)
	}
	if second.Reset > time.Minute {
		t.Errorf("the second of two: second.Reset = %v, want at most %v", second.Reset, time.Minute)
	}
	third, err := st.CountRequest(t.Context(), "k", policy)
	if err != nil {
		t.Fatalf("the third of two: %v", err)
	}
	if third.Allowed {
		t.Errorf("the third of two: third.Allowed = true, want false")
	}
	if third.RetryAfter <= 0 {
		t.Errorf("the third of two: third.RetryAfter = %v, want more than 0", third.RetryAfter)
	}
	if third.RetryAfter > policy.Step() {
		t.Errorf("the third of two: third.RetryAfter = %v, want at most %v", third.RetryAfter, policy.Step())
	}
}
