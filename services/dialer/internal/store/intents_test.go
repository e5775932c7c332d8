package store_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

func TestFence_RejectedOnAnotherServer(t *testing.T) {
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

func TestFenceAgain_RejectedOnAnotherServer(t *testing.T) {
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

func TestWithdrawNow_RejectedOnAnotherServer(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, r := newStore(pool), aRequest(uuid.Must(uuid.NewV7()), 1)
	enqueue(t, pool, st, r)
	st.UseServer("a server that is gone")
	if _, err := st.WithdrawNow(t.Context(), r.CallRequestID, r.WorkspaceID); !errors.Is(err, store.ErrServerChanged) {
		t.Errorf("WithdrawNow on another server = %v, want ErrServerChanged", err)
	}
}

func TestReadFeed_RejectedOnAnotherServer(t *testing.T) {
	t.Parallel()
	st := newStore(newPool(t))
	st.UseServer("a server that is gone")
	_, mine, err := st.ReadFeed(t.Context(), "sim")
	if err != nil {
		t.Fatalf("ReadFeed = %v", err)
	}
	if mine {
		t.Error("ReadFeed on another server = true, want false")
	}
}
