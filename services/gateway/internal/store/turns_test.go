package store_test

import (
	"testing"
	"time"

	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/pgtest"
	"ringfence.dev/services/gateway/internal/quota"
	"ringfence.dev/services/gateway/internal/store"
	"ringfence.dev/services/gateway/migrations"
)

func TestTakeTurn_WhoWaitedForTheRowIsJudgedByTheTimeOfItsTurn(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, store.Schema, outbox.Migrations, pg.Migrations{Name: store.Schema, FS: migrations.FS})
	st := store.New(pool, nil)
	const policy quota.Policy = 2
	if _, err := st.TakeTurn(t.Context(), "k", policy); err != nil {
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
	waited := make(chan quota.Standing, 1)
	go func() {
		standing, err := st.TakeTurn(t.Context(), "k", policy)
		if err != nil {
			t.Error(err)
		}
		waited <- standing
	}()
	for blocked := 0; blocked == 0; {
		const lookForIt = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
		if err := pool.QueryRow(t.Context(), lookForIt).Scan(&blocked); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	// The faster one's turn: the first of two, taken after the other had come.
	if _, err := faster.Exec(t.Context(), `UPDATE rate_limits SET tat = clock_timestamp() + $1::interval WHERE key = 'k'`, policy.Step()); err != nil {
		t.Fatal(err)
	}
	if err := faster.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if second := <-waited; !second.Allowed || second.Remaining != 0 || second.Reset > time.Minute {
		t.Errorf("the second of two = %+v, want it allowed", second)
	}
	third, err := st.TakeTurn(t.Context(), "k", policy)
	if least := policy.Step() - time.Since(begun); err != nil || third.Allowed || third.RetryAfter < least || third.RetryAfter > policy.Step() {
		t.Errorf("the third of two = %+v %v, want it refused for half a minute", third, err)
	}
}
