package retention_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/dialer/internal/retention"
	"ringfence.dev/services/dialer/internal/store"
)

func TestJob_DeletesTranscriptsADayAfterTheEndOfTheCall(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(
		t,
		"dialer",
		outbox.Migrations,
		inbox.Migrations,
		pg.Migrations{Name: "dialer", FS: store.Migrations},
	)
	now := time.Now()
	for _, ended := range []any{nil, now.Add(-time.Hour), now.Add(-23 * time.Hour), now.Add(-25 * time.Hour)} {
		id, status := uuid.Must(uuid.NewV7()), "completed"
		if ended == nil {
			status = "in_progress"
		}
		if _, err := pool.Exec(t.Context(), `INSERT INTO calls (call_id, workspace_id, direction, from_number, to_e164, agent_id, status, max_call_seconds, deadline_at, ended_at, turns)
			VALUES ($1, $1, 'inbound', '+14155550111', '+14155550100', $1, $2, 600, now(), $3, '[{"text":"hello"}]')`, id, status, ended); err != nil {
			t.Fatal(err)
		}
	}
	job := retention.New(store.New(pool, uuid.Must(uuid.NewV7()), store.Timing{}))
	for _, step := range []struct {
		at   time.Time
		want int
	}{{now, 3}, {now, 3}, {now.Add(2 * time.Hour), 2}, {now.Add(1000 * time.Hour), 1}} {
		if err := job.Delete(t.Context(), step.at); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := pool.QueryRow(t.Context(),
			"SELECT count(*) FROM calls WHERE json_array_length(turns) > 0").Scan(&n); err != nil {
			t.Errorf("QueryRow: %v", err)
		} else if n != step.want {
			t.Errorf("calls with a transcript %s after the end = %v, want %v", step.at.Sub(now), n, step.want)
		}
	}
}
