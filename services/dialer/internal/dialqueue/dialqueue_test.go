package dialqueue_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/dialqueue"
)

func TestCandidates_EveryWorkspaceIsSearched(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		workspaces int
		free       int
	}{
		{name: "one worker for each workspace of a claim", workspaces: 150, free: 64},
		{name: "more workers than workspaces in a claim", workspaces: 150, free: 100},
		{name: "no free worker", workspaces: 150, free: 0},
		{name: "as many workspaces as one claim searches", workspaces: 64, free: 64},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var c dialqueue.Candidates
			now := time.Now()
			var found []dialqueue.Due
			for range tt.workspaces {
				found = append(found, dialqueue.Due{WorkspaceID: uuid.New()})
			}
			c.Replace(found, now)
			claims := (tt.workspaces + dialqueue.WorkspacesPerClaim - 1) / dialqueue.WorkspacesPerClaim
			seen := map[uuid.UUID]bool{}
			for range claims {
				window, _, _ := c.Next(now)
				due := make([]dialqueue.WorkspaceDemand, 0, len(window))
				for _, id := range window {
					seen[id] = true
					due = append(due, workspace(10, 0, 500))
				}
				a := dialqueue.Allocate([]dialqueue.Shared{ampleShared()}, dialqueue.Workers{All: 1000, Free: tt.free}, due)
				c.RecordClaim(window, a.Last, nil, now)
				c.Replace(found, now)
			}
			if len(seen) != tt.workspaces {
				t.Errorf("workspaces in %d claims = %d, want %d", claims, len(seen), tt.workspaces)
			}
		})
	}
}

func TestCandidates_ServedWorkspacesMoveToTheEnd(t *testing.T) {
	t.Parallel()
	a, b, d := uuid.New(), uuid.New(), uuid.New()
	now := time.Now()
	var c dialqueue.Candidates
	c.Replace([]dialqueue.Due{{WorkspaceID: a}, {WorkspaceID: b}, {WorkspaceID: d, Wait: time.Second}}, now)
	window := func(at time.Time) []uuid.UUID {
		got, _, _ := c.Next(at)
		return got
	}
	if diff := cmp.Diff([]uuid.UUID{a, b}, window(now)); diff != "" {
		t.Errorf("window (-want +got):\n%s", diff)
	}
	c.RecordClaim([]uuid.UUID{a, b}, 0, nil, now)
	if diff := cmp.Diff([]uuid.UUID{b, d, a}, window(now.Add(time.Second))); diff != "" {
		t.Errorf("window after a was served (-want +got):\n%s", diff)
	}
	c.RecordClaim([]uuid.UUID{b, a}, 1, map[uuid.UUID]time.Duration{a: 400 * time.Millisecond, b: 0}, now)
	if got := window(now); got != nil {
		t.Errorf("window after a and b are drained = %v, want none", got)
	}
	_, wait, ok := c.Next(now)
	if !ok {
		t.Error("Next: ok = false, want true")
	}
	if wait != 400*time.Millisecond {
		t.Errorf("wait = %v, want 400ms, when the next request of a is due", wait)
	}
	if diff := cmp.Diff([]uuid.UUID{d, a}, window(now.Add(time.Second))); diff != "" {
		t.Errorf("window a second later (-want +got):\n%s", diff)
	}
}
