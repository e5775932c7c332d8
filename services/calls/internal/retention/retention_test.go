package retention_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/calls/internal/retention"
	"ringfence.dev/services/calls/internal/store"
)

const day = 24 * time.Hour

func idAt(at time.Time, n byte) uuid.UUID {
	id := page.FirstID(at)
	id[6], id[8], id[15] = 0x70, 0x80, n
	return id
}

func insertEndedCall(t *testing.T, pool *pgxpool.Pool, workspace uuid.UUID, at time.Time, n byte, live bool) {
	t.Helper()
	var ended *time.Time
	status, request := "in_progress", "dialing"
	if !live {
		ended, status, request = &at, "completed", "completed"
	}
	args := pgx.NamedArgs{"id": idAt(at, n), "w": workspace, "status": status, "request": request, "ended": ended, "closed": !live}
	for _, sql := range []string{
		`INSERT INTO call_requests (id, workspace_id, status, call_id, to_e164, agent_id, contact_id, variables, scheduled_for, schedule_if_outside_hours, max_call_seconds, queued_at, completed_at, traceparent)
		VALUES (@id, @w, @request, @id, '+14155550100', @id, @id, '{}', now(), false, 600, now(), @ended, '')`,
		`INSERT INTO calls (id, workspace_id, call_request_id, direction, from_number, to_e164, agent_id, status, billable_seconds, version, ended_at, closed, summary, transcript)
		VALUES (@id, @w, @id, 'outbound', '+15005550006', '+14155550100', @id, @status, 0, 1, @ended, @closed, '{}', '{"turns":[]}')`,
	} {
		if _, err := pool.Exec(t.Context(), sql, args); err != nil {
			t.Fatal(err)
		}
	}
}

func TestJob_DeletesDataOlderThanItsRetentionPeriod(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "calls", outbox.Migrations, inbox.Migrations, pg.Migrations{Name: "calls", FS: store.Migrations})
	st, now := store.New(pool, nil), time.Now()
	standard, brief := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	for _, w := range []store.Workspace{{ID: standard, Version: 1}, {ID: brief, Version: 1, KeepCallsDays: 90, KeepTranscriptsDays: 7}} {
		if err := pg.InTx(t.Context(), pool, func(tx pgx.Tx) error { return st.KeepWorkspace(t.Context(), tx, w) }); err != nil {
			t.Fatal(err)
		}
	}
	for of, workspace := range []uuid.UUID{standard, brief} {
		for n, age := range []time.Duration{day, 10 * day, 40 * day, 100 * day, 6 * 366 * day} {
			insertEndedCall(t, pool, workspace, now.Add(-age), byte(10*of+n), false)
		}
		insertEndedCall(t, pool, workspace, now.Add(-7*366*day), byte(10*of+9),
			true) // a call that has not ended is never deleted
	}
	job := retention.New(st, retention.Config{Calls: 5 * 366 * day, Transcripts: 30 * day})
	for _, step := range []struct {
		name                         string
		workspace                    uuid.UUID
		at                           time.Time
		requests, calls, transcripts int
	}{
		{"default periods", standard, now, 5, 5, 3},
		{"periods of the workspace", brief, now, 4, 4, 2},
		{"default periods, a month later", standard, now.Add(31 * day), 5, 5, 1},
		{"periods of the workspace, three months later", brief, now.Add(92 * day), 1, 1, 1},
		{"default periods, six years later", standard, now.Add(6 * 366 * day), 1, 1, 1},
	} {
		for range 2 { // the second pass must delete nothing more
			if err := job.Once(t.Context(), step.at); err != nil {
				t.Fatal(err)
			}
		}
		var requests, calls, transcripts int
		err := pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM call_requests WHERE workspace_id = $1), count(*), count(transcript) FROM calls WHERE workspace_id = $1`,
			step.workspace).Scan(&requests, &calls, &transcripts)
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if requests != step.requests {
			t.Errorf("%s: requests = %v, want %v", step.name, requests, step.requests)
		}
		if calls != step.calls {
			t.Errorf("%s: calls = %v, want %v", step.name, calls, step.calls)
		}
		if transcripts != step.transcripts {
			t.Errorf("%s: calls with a transcript = %v, want %v", step.name, transcripts, step.transcripts)
		}
	}
}

func TestJob_DeletesOldChargesOfUnknownInboundCalls(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "calls", outbox.Migrations, inbox.Migrations, pg.Migrations{Name: "calls", FS: store.Migrations})
	const insert = "INSERT INTO inbound_charges (call_id, credits_micro, created_at) VALUES ($1, 5000, $2)"
	now, recent := time.Now(), uuid.New()
	for id, age := range map[uuid.UUID]time.Duration{recent: 29 * day, uuid.New(): 31 * day} {
		if _, err := pool.Exec(t.Context(), insert, id, now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if err := retention.New(store.New(pool, nil), retention.Config{}).Once(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	kept, err := pg.Values[uuid.UUID](t.Context(), pool, "SELECT call_id FROM inbound_charges", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(kept, []uuid.UUID{recent}) {
		t.Errorf("kept charges = %v, want %v", kept, recent)
	}
}
