package store_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/calls/internal/callstate"
	"ringfence.dev/services/calls/internal/store"
)

// saveStatus changes the status of a call with a Fold. It calls afterRead after the Fold has read
// the call and before it writes the call.
func saveStatus(t *testing.T, pool *pgxpool.Pool, id uuid.UUID, status callstate.Status, event openapi.EventType,
	afterRead func() error) error {
	t.Helper()
	st := store.New(pool, nil)
	return pg.InPipeline(t.Context(), pool, func(tx *pg.Pipeline) error {
		f, err := st.Lock(t.Context(), tx, store.Wanted{Calls: []uuid.UUID{id}})
		if err != nil {
			return err
		}
		c := &callstate.Call{
			ID: id, WorkspaceID: large, Direction: callstate.Inbound, From: "+14155550100", To: "+15005550006", AgentID: common,
			Status: status, Version: 1, Sequence: 1, Closed: status.Terminal(),
		}
		return errors.Join(afterRead(), f.SaveCall(t.Context(), c, event), f.Write(t.Context(), tx))
	})
}

// Another transaction closes the call after the Fold has read the call. The Fold must roll back,
// together with its event.
func TestFold_RollsBackIfTheCallWasClosedConcurrently(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "calls", outbox.Migrations, inbox.Migrations, pg.Migrations{Name: "calls", FS: store.Migrations})
	id, done := uuid.Must(uuid.NewV7()), false
	err := saveStatus(t, pool, id, callstate.Ringing, openapi.EventTypeCallRinging, func() error {
		return saveStatus(t, pool, id, callstate.Busy, openapi.EventTypeCallBusy, func() error { done = true; return nil })
	})
	if err == nil {
		t.Error("a closed call was opened again: keep = nil, want an error")
	} else if !done {
		t.Error("a closed call was opened again: done = false, want true")
	}
	var status string
	var closed bool
	var events int
	err = pool.QueryRow(t.Context(), "SELECT c.status, c.closed, (SELECT count(*) FROM outbox) FROM calls c").Scan(&status, &closed, &events)
	if err != nil {
		t.Fatal(err)
	}
	if status != string(callstate.Busy) {
		t.Errorf("status = %v, want %v", status, string(callstate.Busy))
	}
	if !closed {
		t.Errorf("closed = false, want true")
	}
	if events != 1 {
		t.Errorf("events = %v, want 1", events)
	}
}

// Each event stores its attempt number in the request. So a late event of an older attempt changes
// nothing, even in a later transaction.
func TestFold_LateReleaseOfAnOlderAttemptChangesNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "calls", outbox.Migrations, inbox.Migrations, pg.Migrations{Name: "calls", FS: store.Migrations})
	st, id := store.New(pool, nil), uuid.Must(uuid.NewV7())
	_, err := pool.Exec(t.Context(), `
		INSERT INTO call_requests (id, workspace_id, status, to_e164, agent_id, contact_id, variables, scheduled_for,
			schedule_if_outside_hours, max_call_seconds, queued_at, traceparent)
		VALUES ($1, $2, 'queued', '+15005550006', $2, $2, '{}', now(), false, 60, now(), '')`, id, large)
	if err != nil {
		t.Fatal(err)
	}
	fold := func(move func(*callstate.Request) bool) {
		t.Helper()
		err := pg.InPipeline(t.Context(), pool, func(tx *pg.Pipeline) error {
			f, err := st.Lock(t.Context(), tx, store.Wanted{Requests: []uuid.UUID{id}})
			if err != nil {
				return err
			}
			if req := f.Request(id); move(req) {
				f.SaveRequest(req)
			}
			return f.Write(t.Context(), tx)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	fold(func(r *callstate.Request) bool { return r.Dial(1) })
	fold(func(r *callstate.Request) bool { return r.Release(1) })
	fold(func(r *callstate.Request) bool { return r.Dial(2) })
	fold(func(r *callstate.Request) bool { return r.Release(1) })
	found, err := st.Request(t.Context(), large, id)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := found.Status, callstate.RequestDialing; got != want {
		t.Errorf("status after a late release = %q, want %q", got, want)
	}
}
