package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

func oldID(at time.Time) uuid.UUID {
	id := uuid.Must(uuid.NewV7())
	for i, ms := 5, at.UnixMilli(); i >= 0; i, ms = i-1, ms>>8 {
		id[i] = byte(ms)
	}
	return id
}

func TestDeleteEnded_KeepsYoungAndReferencedRows(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st := newStore(pool)
	now := time.Now()
	limit := now.Add(-60 * 24 * time.Hour)
	old, young := limit.Add(-time.Hour), limit.Add(time.Hour)
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	names := map[uuid.UUID]string{}
	id := func(name string) uuid.UUID {
		id := oldID(old.Add(-time.Hour))
		names[id] = name
		return id
	}
	const request = `INSERT INTO dial_queue (call_request_id, workspace_id, state, to_e164, agent_id, due_at,
		look_at, ended_at) VALUES ($1, $1, $2, '+14155550100', $1, $3, $3, $4)`
	for range 5 {
		exec(request, id("old request"), "ended", old, old)
	}
	exec(request, id("young request"), "ended", young, young)
	exec(request, id("request that waits"), "queued", old, nil)
	inCall := id("request in a call")
	exec(request, inCall, "dialing", old, nil)
	exec(request, id("canceled request of a later time"), "withdrawn", now.Add(time.Hour), old)
	exec(`INSERT INTO dial_queue (call_request_id, workspace_id, state, ended_at) VALUES ($1, $1, 'withdrawn', $2)`,
		id("old withdrawal without a request"), old)

	const call = `INSERT INTO calls (call_id, workspace_id, direction, from_number, to_e164, agent_id, status,
		max_call_seconds, deadline_at, ended_at, analyse_at) VALUES ($1, $1, 'inbound', '', '', $1, $2, 60, now(), $3, $4)`
	for range 5 {
		exec(call, id("old call"), "completed", old, nil)
	}
	exec(call, id("young call"), "completed", young, nil)
	exec(call, id("live call"), "in_progress", nil, nil)
	exec(call, id("call that waits for its analysis"), "completed", old, old)
	recorded := id("call with a recording")
	exec(call, recorded, "completed", old, nil)
	exec(`INSERT INTO recordings (call_id, workspace_id, key, spool) VALUES ($1, $1, 'k', $1)`, recorded)
	const fence = `INSERT INTO fences (call_id, call_request_id, attempt, trunk, instance_id, fenced_at)
		VALUES ($1, $2, 1, 'sim', $1, $3)`
	for range 5 {
		exec(fence, id("old fence"), uuid.New(), old)
	}
	exec(fence, id("young fence"), uuid.New(), young)
	exec(fence, id("fence of a request that stays"), inCall, old)
	exec(fence, recorded, uuid.New(), old)

	const optOut = `INSERT INTO opt_outs (call_id, workspace_id, phone_e164, evidence, heard_at, acknowledged_at)
		VALUES ($1, $1, '', '', now(), $2)`
	exec(optOut, id("old opt-out"), old)
	exec(optOut, id("opt-out that is not acknowledged"), nil)

	deleted, err := st.DeleteEnded(t.Context(), limit, 2)
	if err != nil {
		t.Fatalf("DeleteEnded: %v", err)
	}
	if deleted != 17 {
		t.Errorf("deleted rows = %d, want 17", deleted)
	}
	rows, err := pool.Query(t.Context(), `SELECT call_request_id FROM dial_queue UNION ALL SELECT call_id FROM calls
		UNION ALL SELECT call_id FROM opt_outs UNION ALL SELECT call_id FROM fences`)
	if err != nil {
		t.Fatalf("read what is left: %v", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		t.Fatalf("read what is left: %v", err)
	}
	var left []string
	for _, id := range ids {
		left = append(left, names[id])
	}
	slices.Sort(left)
	want := []string{
		// The call with a recording is listed twice: for its row in calls, and for its fence.
		"call that waits for its analysis", "call with a recording", "call with a recording",
		"canceled request of a later time", "fence of a request that stays", "live call", "opt-out that is not acknowledged",
		"request in a call", "request that waits", "young call", "young fence", "young request",
	}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("rows that are left (-want +got):\n%s", diff)
	}
}

// A request arrives again after its row was deleted. No claim takes it, because it has been due for
// longer than QUEUE_LIMIT.
func TestDeleteEnded_RequestThatArrivesAgainIsNotDialed(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st := newStore(pool)
	r := aRequest(uuid.Must(uuid.NewV7()), 1)
	r.DueAt = time.Now().Add(-60 * 24 * time.Hour)
	enqueue(t, pool, st, r)
	if got := claimRequests(t, st, 5); len(got) != 0 {
		t.Errorf("claimed requests = %d, want 0", len(got))
	}
	if _, err := st.Expire(t.Context()); err != nil {
		t.Fatalf("Expire: %v", err)
	}
	if got := countRows(t, pool, "SELECT count(*) FROM dial_queue WHERE state = 'failed'"); got != 1 {
		t.Errorf("failed requests = %d, want 1", got)
	}
}
