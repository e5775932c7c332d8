package sipcarrier

import (
	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/carrier"
)

// A response 403 can be about our account or about the callee's number (ADR 2).
const (
	// suspectNew and suspectProven are how many numbers in a row a trunk must refuse with 403 until our account is
	// the likely cause: for a trunk that has not taken a call since its last change, and for the others.
	suspectNew, suspectProven = 2, 5
	// suspectOneWorkspace is how many numbers in a row are enough if all of them belong to one workspace although
	// others have called over the trunk.
	suspectOneWorkspace = 20
	// maxReleases is how often one number is released after a 403 while the number can be the cause.
	maxReleases = 10
)

// forbiddenCounter counts responses 403 since the last call that the trunk took. The zero value is ready.
type forbiddenCounter struct {
	numbers    map[string]int
	workspaces map[uuid.UUID]bool
	// first and more describe the workspaces that called over the trunk: the first one, and whether there are others.
	first uuid.UUID
	any   bool
	more  bool
}

// addCaller notes a workspace that calls over the trunk.
func (f *forbiddenCounter) addCaller(workspaceID uuid.UUID) {
	if !f.any {
		f.first, f.any = workspaceID, true
	}
	f.more = f.more || f.first != workspaceID
}

// add counts a response and returns how many there were for the number.
func (f *forbiddenCounter) add(order carrier.Originate) (times int) {
	if f.numbers == nil {
		f.numbers, f.workspaces = map[string]int{}, map[uuid.UUID]bool{}
	}
	f.numbers[order.To]++
	f.workspaces[order.WorkspaceID] = true
	return f.numbers[order.To]
}

// suspect reports whether our account is the likely cause. If other workspaces have called over the trunk, a few
// numbers of one workspace are not enough: they may be barred. accepted: the trunk has taken a call since its last
// change.
func (f *forbiddenCounter) suspect(accepted bool) bool {
	numbers := suspectNew
	if accepted {
		numbers = suspectProven
	}
	if len(f.workspaces) == 1 && f.more {
		numbers = suspectOneWorkspace
	}
	return len(f.numbers) >= numbers
}

func (f *forbiddenCounter) clear() {
	clear(f.numbers)
	clear(f.workspaces)
}
