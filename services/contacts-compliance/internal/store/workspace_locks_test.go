package store

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

func TestWorkspaceLocks_AllowOneCallerPerWorkspace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var searches workspaceLocks
		var all sync.WaitGroup
		started := time.Now()
		for _, workspace := range []uuid.UUID{uuid.New(), uuid.New()} {
			for range 3 {
				all.Go(func() {
					done, err := searches.lock(t.Context(), workspace)
					if err != nil {
						t.Errorf("lock = %v", err)
						return
					}
					defer done()
					<-time.After(time.Second)
				})
			}
		}
		all.Wait()
		if got, want := time.Since(started), 3*time.Second; got != want {
			t.Errorf("three locks of a second in each of two workspaces took %v, want %v", got, want)
		}
		if got := len(searches.locks); got != 0 {
			t.Errorf("locks = %d, want 0", got)
		}
	})
}

func TestWorkspaceLocks_CanceledCallerStopsWaiting(t *testing.T) {
	t.Parallel()
	var searches workspaceLocks
	workspace := uuid.New()
	done, err := searches.lock(t.Context(), workspace)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := searches.lock(ctx, workspace); !errors.Is(err, context.Canceled) {
		t.Errorf("lock with a canceled context = %v, want %v", err, context.Canceled)
	}
	done()
	if got := len(searches.locks); got != 0 {
		t.Errorf("locks = %d, want 0", got)
	}
}
