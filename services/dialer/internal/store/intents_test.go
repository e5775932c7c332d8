package store_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

func TestFence_IsRejectedOnAnUnreconciledDatabaseServer(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, r := newStore(pool), aRequest(uuid.Must(uuid.NewV7()), 1)
	enqueue(t, pool, st, r)
	claimed := claimRequests(t, st, 1)
	if got := len(claimed); got != 1 {
		t.Fatalf("claimed requests = %d, want 1", got)
	}
	r = claimed[0]
	st.UseServer("a server that is gone")
	fence := func() error {
		return st.Fence(t.Context(), r, uuid.Must(uuid.NewV7()), dialqueue.DefaultFrom, "sim")
	}
	if err := fence(); !errors.Is(err, store.ErrLost) {
		t.Errorf("Fence on another server = %v, want ErrLost", err)
	}
	state, err := st.ServerState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	st.UseServer(state.Server)
	if err := fence(); err != nil {
		t.Errorf("Fence on the server that was reconciled = %v", err)
	}
}

func TestFenceAgain_IsRejectedOnAnUnreconciledDatabaseServer(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, r := newStore(pool), aRequest(uuid.Must(uuid.NewV7()), 1)
	enqueue(t, pool, st, r)
	claimed := claimRequests(t, st, 1)
	if got := len(claimed); got != 1 {
		t.Fatalf("claimed requests = %d, want 1", got)
	}
	r = claimed[0]
	refused := uuid.Must(uuid.NewV7())
	if err := st.Fence(t.Context(), r, refused, dialqueue.DefaultFrom, "sim"); err != nil {
		t.Fatalf("Fence = %v", err)
	}
	st.UseServer("a server that is gone")
	again := func() error {
		return st.FenceAgain(t.Context(), r, refused, uuid.Must(uuid.NewV7()), dialqueue.DefaultFrom, "sim")
	}
	if err := again(); !errors.Is(err, store.ErrLost) {
		t.Errorf("FenceAgain on another server = %v, want ErrLost", err)
	}
	state, err := st.ServerState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	st.UseServer(state.Server)
	if err := again(); err != nil {
		t.Errorf("FenceAgain on the server that was reconciled = %v", err)
	}
}

func TestWithdrawNow_IsRejectedOnAnUnreconciledDatabaseServer(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, r := newStore(pool), aRequest(uuid.Must(uuid.NewV7()), 1)
	enqueue(t, pool, st, r)
	st.UseServer("a server that is gone")
	if _, err := st.WithdrawNow(t.Context(), r.CallRequestID, r.WorkspaceID); !errors.Is(err, store.ErrServerChanged) {
		t.Errorf("WithdrawNow on another server = %v, want ErrServerChanged", err)
	}
}

func TestClaimEventStream_IsRejectedOnAnUnreconciledDatabaseServer(t *testing.T) {
	t.Parallel()
	st := newStore(newPool(t))
	st.UseServer("a server that is gone")
	_, mine, err := st.ClaimEventStream(t.Context(), "sim")
	if err != nil {
		t.Fatalf("ClaimEventStream = %v", err)
	}
	if mine {
		t.Error("ClaimEventStream on another server = true, want false")
	}
}

// Another database server can lack a later call of the same request.
func TestOwnFences_ReturnsNoCallOnAnUnreconciledDatabaseServer(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, workspace := newStore(pool), uuid.Must(uuid.NewV7())
	id := fenced(t, pool, st, aRequest(workspace, 1))
	changes := 0
	change := func() error {
		return st.ChangeOnServer(t.Context(), []uuid.UUID{id}, func(map[uuid.UUID]*callstate.Call) { changes++ })
	}
	own := func() int {
		t.Helper()
		ids, err := st.OwnFences(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(ids)
	}
	if got := own(); got != 1 {
		t.Errorf("own fences = %d, want 1", got)
	}
	st.UseServer("a server that is gone")
	if got := own(); got != 0 {
		t.Errorf("own fences on another server = %d, want 0", got)
	}
	if err := change(); !errors.Is(err, store.ErrServerChanged) {
		t.Errorf("ChangeOnServer on another server = %v, want ErrServerChanged", err)
	}
	if changes != 0 {
		t.Errorf("changes on another server = %d, want 0", changes)
	}
	state, err := st.ServerState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	st.UseServer(state.Server)
	if err := change(); err != nil {
		t.Errorf("ChangeOnServer on the server that was reconciled = %v, want nil", err)
	}
	if changes != 1 {
		t.Errorf("changes = %d, want 1", changes)
	}
}

// After a failover, the answer of a call can be missing until the call's process has stored it
// again.
func TestSweep_WaitsForMissingEventsAfterAFailover(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st := newStore(pool)
	state, err := st.ServerState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fenced(t, pool, st, aRequest(uuid.Must(uuid.NewV7()), 1))
	steps := []struct {
		name         string
		used         string
		reconciledAt string // an SQL expression; empty if nothing is stored about the database server
		want         int64
	}{
		{name: "another server", used: "a server that is gone", reconciledAt: "now() - interval '1 hour'", want: 0},
		{name: "not reconciled", used: state.Server, want: 0},
		{name: "just reconciled", used: state.Server, reconciledAt: "now()", want: 0},
		{name: "reconciled before", used: state.Server, reconciledAt: "now() - interval '11 seconds'", want: 1},
	}
	for _, column := range []string{"end_by", "deadline_at"} {
		for _, step := range steps {
			for _, sql := range []string{
				"UPDATE calls SET ending = '', end_by = NULL, deadline_at = now() + interval '1 hour'",
				"UPDATE calls SET " + column + " = now() - interval '1 second'",
				"DELETE FROM reconciled_servers",
			} {
				if _, err := pool.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			if step.reconciledAt != "" {
				_, err := pool.Exec(t.Context(), `INSERT INTO reconciled_servers (server, topic_id, reconciled_at)
					VALUES ($1, gen_random_uuid(), `+step.reconciledAt+`)`, state.Server)
				if err != nil {
					t.Fatal(err)
				}
			}
			st.UseServer(step.used)
			marked, err := st.Sweep(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if marked != step.want {
				t.Errorf("%s, %s: marked calls = %d, want %d", column, step.name, marked, step.want)
			}
		}
	}
}

// Another database server can lack the fence of a request.
func TestExpire_EndsNoRequestOnAnUnreconciledDatabaseServer(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, r := newStore(pool), aRequest(uuid.Must(uuid.NewV7()), 1)
	enqueue(t, pool, st, r)
	if _, err := pool.Exec(t.Context(), "UPDATE dial_queue SET due_at = now() - interval '25 hours'"); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		server string
		want   int
	}{{server: "a server that is gone", want: 0}, {server: "", want: 1}} {
		st.UseServer(step.server)
		ended, err := st.Expire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ended != step.want {
			t.Errorf("requests that ended with the server %q = %d, want %d", step.server, ended, step.want)
		}
	}
}

// On the first server of a database no events can be missing.
func TestSweep_DoesNotWaitAfterTheFirstReconciliation(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st := newStore(pool)
	state, err := st.ServerState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fenced(t, pool, st, aRequest(uuid.Must(uuid.NewV7()), 1))
	st.UseServer(state.Server)
	for n, want := range []int64{1, 0} {
		if err := st.SetReconciled(t.Context(), state.Server, uuid.New(), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := pool.Exec(t.Context(), "UPDATE calls SET ending = '', end_by = now()"); err != nil {
			t.Fatal(err)
		}
		marked, err := st.Sweep(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if marked != want {
			t.Errorf("marked calls after reconciliation %d = %d, want %d", n+1, marked, want)
		}
	}
}
