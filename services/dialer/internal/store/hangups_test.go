package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

func endingOf(t *testing.T, pool *pgxpool.Pool, callID uuid.UUID) (ending callstate.Ending) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), "SELECT ending FROM calls WHERE call_id = $1", callID).Scan(&ending); err != nil {
		t.Fatal(err)
	}
	return ending
}

func initiate(t *testing.T, st *store.Store, callID uuid.UUID) {
	t.Helper()
	err := st.Change(t.Context(), []uuid.UUID{callID}, func(calls map[uuid.UUID]*callstate.Call) {
		calls[callID].Initiate(time.Now())
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestRequestHangup_MarksOnlyALiveCallOfTheWorkspace(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		before  func(t *testing.T, pool *pgxpool.Pool, st *store.Store, callID uuid.UUID)
		foreign bool
		live    bool
		ending  callstate.Ending
	}{
		{name: "live", live: true, ending: callstate.EndingRequested},
		{name: "requested before", live: true, ending: callstate.EndingRequested,
			before: func(t *testing.T, _ *pgxpool.Pool, st *store.Store, callID uuid.UUID) {
				workspace, err := st.WorkspaceOfCall(t.Context(), callID)
				if err == nil {
					_, err = st.RequestHangup(t.Context(), workspace.WorkspaceID, callID, "ops")
				}
				if err != nil {
					t.Fatal(err)
				}
			}},
		{name: "the dialer already hangs it up", live: true, ending: callstate.EndingLongest,
			before: func(t *testing.T, pool *pgxpool.Pool, _ *store.Store, _ uuid.UUID) {
				exec(t, pool, "UPDATE calls SET ending = 'max_duration', hangup_at = now()")
			}},
		{name: "ended", before: func(t *testing.T, _ *pgxpool.Pool, st *store.Store, callID uuid.UUID) {
			end(t, st, callID)
		}},
		{name: "of another workspace", foreign: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			st, r := newStore(pool), aRequest(uuid.Must(uuid.NewV7()), 1)
			callID := fenced(t, pool, st, r)
			initiate(t, st, callID)
			if tt.before != nil {
				tt.before(t, pool, st, callID)
			}
			workspace := r.WorkspaceID
			if tt.foreign {
				workspace = uuid.Must(uuid.NewV7())
			}
			live, err := st.RequestHangup(t.Context(), workspace, callID, "ops")
			if err != nil {
				t.Fatal(err)
			}
			if live != tt.live {
				t.Errorf("live = %t, want %t", live, tt.live)
			}
			if got := endingOf(t, pool, callID); got != tt.ending {
				t.Errorf("ending = %q, want %q", got, tt.ending)
			}
			wantDue := 0
			if tt.ending != "" {
				wantDue = 1
			}
			due, err := st.DueHangups(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(due) != wantDue {
				t.Errorf("due hang-ups = %v, want %d", due, wantDue)
			}
		})
	}
}

// The hang-up of all calls is requested after the commit of a fence and before the INVITE. Each way
// in which the attempt can end must still succeed.
func TestRequestHangups_AttemptCanStillEndItsFencedCall(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		then   func(t *testing.T, pool *pgxpool.Pool, st *store.Store, callID uuid.UUID) error
		status callstate.Status
		ending callstate.Ending
	}{
		{name: "the carrier accepts the call", status: callstate.Initiated, ending: callstate.EndingRequested,
			then: func(t *testing.T, _ *pgxpool.Pool, st *store.Store, callID uuid.UUID) error {
				initiate(t, st, callID)
				return nil
			}},
		{name: "the attempt is queued again", status: callstate.Void, ending: callstate.EndingRequested,
			then: func(t *testing.T, pool *pgxpool.Pool, st *store.Store, callID uuid.UUID) error {
				r := aRequest(uuid.Nil, 1)
				const request = "SELECT call_request_id, workspace_id FROM calls WHERE call_id = $1"
				if err := pool.QueryRow(t.Context(), request, callID).Scan(&r.CallRequestID, &r.WorkspaceID); err != nil {
					return err
				}
				return st.Release(t.Context(), r, callID, "", time.Second)
			}},
		// It is unknown whether the INVITE was sent.
		{name: "the process dies", status: callstate.Fenced, ending: callstate.EndingRecovery,
			then: func(t *testing.T, pool *pgxpool.Pool, _ *store.Store, _ uuid.UUID) error {
				exec(t, pool, "UPDATE instances SET seen_at = now() - interval '1 hour'")
				other := newStore(pool)
				if err := other.Heartbeat(t.Context()); err != nil {
					return err
				}
				exec(t, pool, "UPDATE instances SET steady_since = now() - interval '1 hour'")
				_, err := other.TakeOver(t.Context())
				return err
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			st, r := newStore(pool), aRequest(uuid.Must(uuid.NewV7()), 1)
			if err := st.Heartbeat(t.Context()); err != nil {
				t.Fatal(err)
			}
			callID := fenced(t, pool, st, r)
			calls, err := st.RequestHangups(t.Context(), r.WorkspaceID, "ops")
			if err != nil {
				t.Fatal(err)
			}
			if calls != 1 {
				t.Errorf("calls = %d, want 1", calls)
			}
			if owned, err := st.StillFenced(t.Context(), callID); err != nil || !owned {
				t.Errorf("StillFenced = %t, %v, want true", owned, err)
			}
			if err := tt.then(t, pool, st, callID); err != nil {
				t.Fatal(err)
			}
			var status callstate.Status
			const read = "SELECT status FROM calls WHERE call_id = $1"
			if err := pool.QueryRow(t.Context(), read, callID).Scan(&status); err != nil {
				t.Fatal(err)
			}
			if status != tt.status {
				t.Errorf("status = %q, want %q", status, tt.status)
			}
			if got := endingOf(t, pool, callID); got != tt.ending {
				t.Errorf("ending = %q, want %q", got, tt.ending)
			}
		})
	}
}

// A trunk refuses a call whose hang-up is already requested. The call over the next trunk must be
// hung up.
func TestFenceAgain_KeepsARequestedHangup(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, r := newStore(pool), aRequest(uuid.Must(uuid.NewV7()), 1)
	refused, next := fenced(t, pool, st, r), uuid.Must(uuid.NewV7())
	if calls, err := st.RequestHangups(t.Context(), r.WorkspaceID, "ops"); err != nil || calls != 1 {
		t.Fatalf("RequestHangups = %d, %v, want 1", calls, err)
	}
	if err := st.FenceAgain(t.Context(), r, refused, next, dialqueue.DefaultFrom, "sim"); err != nil {
		t.Fatal(err)
	}
	if got := endingOf(t, pool, next); got != callstate.EndingRequested {
		t.Errorf("ending of the call over the next trunk = %q, want %q", got, callstate.EndingRequested)
	}
}
