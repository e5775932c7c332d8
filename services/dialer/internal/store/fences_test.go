package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

func TestFences_OnlyRequestsThatMayNotBeDialedAreRejected(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		before string
	}{
		{name: "the number is in another call", before: `
INSERT INTO calls (call_id, call_request_id, workspace_id, direction, from_number, to_e164, agent_id, status,
	max_call_seconds, deadline_at)
SELECT gen_random_uuid(), gen_random_uuid(), workspace_id, 'outbound', '', to_e164, agent_id, 'in_progress',
	600, now() + interval '10 minutes' FROM dial_queue WHERE call_request_id = $1`},
		{name: "the request was withdrawn", before: `
UPDATE dial_queue SET state = 'withdrawn', claimed_by = NULL, ended_at = now() WHERE call_request_id = $1`},
		{name: "the claim has expired", before: `
UPDATE dial_queue SET look_at = now() - interval '1 second' WHERE call_request_id = $1`},
		{name: "the request was claimed again", before: `
UPDATE dial_queue SET look_at = look_at + interval '1 second' WHERE call_request_id = $1`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			st, workspace := newStore(pool), uuid.Must(uuid.NewV7())
			for n := range 3 {
				enqueue(t, pool, st, aRequest(workspace, n))
			}
			fences := claimedFences(t, st, 3)
			if _, err := pool.Exec(t.Context(), tt.before, fences[1].Request.CallRequestID); err != nil {
				t.Fatal(err)
			}

			results := st.Fences(t.Context(), fences)

			for i, want := range []error{nil, store.ErrLost, nil} {
				if !errors.Is(results[i], want) {
					t.Errorf("result of fence %d = %v, want %v", i, results[i], want)
				}
				if got := countRows(t, pool, countCommitted, fences[i].CallID) == 1; got != (want == nil) {
					t.Errorf("fence %d committed = %t, want %t", i, got, want == nil)
				}
			}
			const dialing = `SELECT count(*) FROM outbox WHERE topic = 'dial-events.v1'`
			if got := countRows(t, pool, dialing); got != 2 {
				t.Errorf("events = %d, want 2", got)
			}
		})
	}
}

// countCommitted counts a fence only if its call and the state `dialing` of its request were
// committed too.
const countCommitted = `SELECT count(*) FROM fences f JOIN calls USING (call_id)
JOIN dial_queue q ON q.call_request_id = f.call_request_id AND q.state = 'dialing' WHERE call_id = $1`

func claimedFences(t *testing.T, st *store.Store, n int) (fences []store.Fence) {
	t.Helper()
	for _, r := range claimRequests(t, st, n) {
		fences = append(fences, store.Fence{
			Request: r, CallID: uuid.Must(uuid.NewV7()), From: dialqueue.DefaultFrom, Trunk: "sim",
		})
	}
	if len(fences) != n {
		t.Fatalf("claimed requests = %d, want %d", len(fences), n)
	}
	return fences
}

func TestDialInputs_ReturnsTheInputsOfEachRequest(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, known, unknown := newStore(pool), aRequest(uuid.Must(uuid.NewV7()), 1), aRequest(uuid.Must(uuid.NewV7()), 1)
	w := dialqueue.Workspace{WorkspaceID: known.WorkspaceID, Version: 1, Status: "active", APIEnabled: true}
	if err := st.ApplyWorkspace(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	a := dialqueue.Agent{
		AgentID: known.AgentID, WorkspaceID: known.WorkspaceID, Version: 1, Name: "Ann",
		Settings: []byte(`{"kind":"scripted"}`),
	}
	if err := st.ApplyAgent(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	n := dialqueue.Number{
		NumberID: uuid.Must(uuid.NewV7()), WorkspaceID: known.WorkspaceID, PhoneE164: "+15005550001", AgentID: known.AgentID,
	}
	if err := st.AddNumber(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	_, err := pool.Exec(t.Context(), `INSERT INTO opt_outs (call_id, workspace_id, phone_e164, evidence, heard_at)
		VALUES (gen_random_uuid(), $1, $2, '', now())`, unknown.WorkspaceID, string(unknown.To))
	if err != nil {
		t.Fatal(err)
	}

	found, err := st.DialInputs(t.Context(), known, unknown)
	if err != nil {
		t.Fatal(err)
	}

	first, second := found[0], found[1]
	if first.Workspace == nil {
		t.Error("workspace of the first = nil, want it")
	}
	if second.Workspace != nil {
		t.Errorf("workspace of the second = %v, want nil", second.Workspace)
	}
	if first.Agent == nil {
		t.Error("agent of the first = nil, want it")
	}
	if second.Agent != nil {
		t.Errorf("agent of the second = %v, want nil", second.Agent)
	}
	if first.Number != n.PhoneE164 {
		t.Errorf("number of the first = %q, want %q", first.Number, n.PhoneE164)
	}
	if second.Number != "" {
		t.Errorf("number of the second = %q, want none", second.Number)
	}
	if first.OptedOut {
		t.Error("first opted out = true, want false: the opt-out is of another workspace")
	}
	if !second.OptedOut {
		t.Error("second opted out = false, want true")
	}
}

func TestFences_LockedRowRejectsOnlyItsRequest(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, workspace := newStore(pool), uuid.Must(uuid.NewV7())
	for n := range 3 {
		enqueue(t, pool, st, aRequest(workspace, n))
	}
	fences := claimedFences(t, st, 3)
	var results []error
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		const lock = "SELECT FROM dial_queue WHERE call_request_id = $1 FOR UPDATE"
		if _, err := tx.Exec(t.Context(), lock, fences[1].Request.CallRequestID); err != nil {
			return err
		}
		results = st.Fences(t.Context(), fences)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []error{nil, store.ErrLost, nil} {
		if !errors.Is(results[i], want) {
			t.Errorf("result of fence %d = %v, want %v", i, results[i], want)
		}
		if got := countRows(t, pool, countCommitted, fences[i].CallID) == 1; got != (want == nil) {
			t.Errorf("fence %d committed = %t, want %t", i, got, want == nil)
		}
	}
}

// One process claims a request twice. An attempt that belongs to the first claim must not end the
// second claim.
func TestClaim_AttemptOfAnEarlierClaimDoesNotEndALaterClaim(t *testing.T) {
	t.Parallel()
	no := dialqueue.Refusal{Code: dialqueue.CodeOutsideHours, Detail: "No."}
	tests := []struct {
		name string
		end  func(*store.Store, dialqueue.Request) error
		want error
	}{
		{name: "PutBack", end: func(st *store.Store, r dialqueue.Request) error {
			return st.PutBack(t.Context(), r, 0, 0)
		}},
		{name: "Reschedule", want: store.ErrLost, end: func(st *store.Store, r dialqueue.Request) error {
			return st.Reschedule(t.Context(), r, time.Now().Add(time.Hour))
		}},
		{name: "Block", want: store.ErrLost, end: func(st *store.Store, r dialqueue.Request) error {
			return st.Block(t.Context(), r, no)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			st := newStore(pool)
			enqueue(t, pool, st, aRequest(uuid.Must(uuid.NewV7()), 1))
			first := claimedFences(t, st, 1)[0]
			if _, err := pool.Exec(t.Context(), "UPDATE dial_queue SET look_at = now() - interval '1 second'"); err != nil {
				t.Fatal(err)
			}
			second := claimedFences(t, st, 1)
			if err := tt.end(st, first.Request); !errors.Is(err, tt.want) {
				t.Errorf("%s of the first claim = %v, want %v", tt.name, err, tt.want)
			}
			if err := st.Fences(t.Context(), second)[0]; err != nil {
				t.Errorf("fence of the second claim = %v, want nil", err)
			}
		})
	}
}
