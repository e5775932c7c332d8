package sipcarrier

import (
	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/carrier"
)

// A 403 can concern the operator's account at the carrier, or the number of the callee. The
// forbiddenCounter determines which of the two is likely (ADR 2).
const (
	// suspectNew and suspectProven are numbers of callees. If a trunk refuses that many callees in a
	// row with 403, the likely cause is the operator's account. suspectNew applies to a trunk that has
	// accepted no call since its last change, suspectProven to any other trunk.
	suspectNew, suspectProven = 2, 5
	// suspectOneWorkspace applies instead if only calls of one workspace are refused, although
	// another workspace also uses the trunk.
	suspectOneWorkspace = 20
	// maxReleases is how often a call request is released after a 403 to its number. After that, the
	// request ends. Otherwise a number that always gets 403 would be dialed forever.
	maxReleases = 10
)

// forbiddenCounter counts the 403 responses since the trunk last accepted a call. The zero value is
// ready to use.
type forbiddenCounter struct {
	numbers    map[string]int
	workspaces map[uuid.UUID]bool
	// firstWorkspace is the first workspace that called over the trunk. hasFirst is true if it is set.
	// hasSecond is true if another workspace has called over the trunk.
	firstWorkspace uuid.UUID
	hasFirst       bool
	hasSecond      bool
}

func (f *forbiddenCounter) addCaller(workspaceID uuid.UUID) {
	if !f.hasFirst {
		f.firstWorkspace, f.hasFirst = workspaceID, true
	}
	f.hasSecond = f.hasSecond || f.firstWorkspace != workspaceID
}

// countForbidden counts a 403. It returns how often the number of the call was refused with 403.
func (f *forbiddenCounter) countForbidden(order carrier.Originate) (times int) {
	if f.numbers == nil {
		f.numbers, f.workspaces = map[string]int{}, map[uuid.UUID]bool{}
	}
	f.numbers[order.To]++
	f.workspaces[order.WorkspaceID] = true
	return f.numbers[order.To]
}

// suspectsAccount reports whether the operator's account is the likely cause of the 403 responses.
// accepted is true if the trunk has accepted a call since its last change. If only one of several
// workspaces is refused, more refusals are needed.
func (f *forbiddenCounter) suspectsAccount(accepted bool) bool {
	numbers := suspectNew
	if accepted {
		numbers = suspectProven
	}
	if len(f.workspaces) == 1 && f.hasSecond {
		numbers = suspectOneWorkspace
	}
	return len(f.numbers) >= numbers
}

func (f *forbiddenCounter) clear() {
	clear(f.numbers)
	clear(f.workspaces)
}
