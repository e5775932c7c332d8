package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestClaim_EachWorkspaceIsServedOncePerRound(t *testing.T) {
	t.Parallel()
	const workspaces, workers = 150, 10
	pool := newPool(t)
	for n := range workspaces {
		insertRequests(t, pool, uuid.Must(uuid.NewV7()), 10*n, 10*n+4, -time.Hour)
	}
	replica := &claimer{Store: newStore(pool)}
	got := map[uuid.UUID]int{}
	for round := 1; round <= 2; round++ {
		for claims := 0; claims < workspaces/workers; claims++ {
			claimed, err := replica.claim(t.Context(), ampleCapacity(workers))
			if err != nil {
				t.Fatalf("Claim: %v", err)
			}
			for _, r := range claimed.Requests {
				if got[r.WorkspaceID]++; got[r.WorkspaceID] > round {
					t.Fatalf("requests claimed of a workspace in round %d = %d", round, got[r.WorkspaceID])
				}
			}
		}
		if len(got) != workspaces {
			t.Fatalf("workspaces served after round %d = %d, want %d", round, len(got), workspaces)
		}
	}
}
