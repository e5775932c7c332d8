package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
)

// TestClaim_EveryWorkspaceHasItsTurn: of more workspaces with due work than one claim looks at, each gets one before any gets a second.
func TestClaim_EveryWorkspaceHasItsTurn(t *testing.T) {
	t.Parallel()
	const workspaces, hands = 150, 10
	pool := newPool(t)
	st := newStore(pool)
	for n := range workspaces {
		many(t, pool, uuid.Must(uuid.NewV7()), 10*n, 10*n+4, -time.Hour)
	}
	had := map[uuid.UUID]int{}
	for round := 1; round <= 2; round++ {
		for claims := 0; claims < workspaces/hands; claims++ {
			for _, r := range claim(t, st, hands) {
				if had[r.WorkspaceID]++; had[r.WorkspaceID] > round {
					t.Fatalf("a workspace got %d while others had not had %d", had[r.WorkspaceID], round)
				}
			}
		}
		for id, n := range had {
			if n != round {
				t.Errorf("workspace %s had %d after %d rounds", id, n, round)
			}
		}
		if len(had) != workspaces {
			t.Fatalf("%d of %d workspaces had a turn", len(had), workspaces)
		}
	}
}
