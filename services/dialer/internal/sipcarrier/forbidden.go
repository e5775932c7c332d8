package sipcarrier

import (
	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/carrier"
)

// A response 403 can be about the operator's account at the carrier or about the number of the
// callee. The counter determines which of the two is likely (ADR 2).
const (
	// suspectNew and suspectProven: if a trunk refuses that many callees in a row with 403, the
	// likely cause is the operator's account. suspectNew applies to a trunk that has accepted no
	// call since its last change.
	suspectNew, suspectProven = 2, 5
	// suspectOneWorkspace replaces these thresholds if all refused calls are of one workspace and
	// another workspace has called over the trunk.
	suspectOneWorkspace = 20
	// maxReleases is how often a call request to one number is released after a 403. After that,
	// the call request ends. Otherwise a barred number would be dialed forever.
	maxReleases = 10
)

// forbiddenCounter counts the 403 responses since the trunk last accepted a call. The zero value
// can be used.
type forbiddenCounter struct {
	numbers    map[string]int
	workspaces map[uuid.UUID]bool
	// firstWorkspace is the first workspace that called over the trunk. hasFirst reports that it is
	// set. hasSecond reports that another workspace has called over the trunk.
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

// countForbidden counts a 403 and returns how often the number of the call was refused.
func (f *forbiddenCounter) countForbidden(order carrier.Originate) (times int) {
	if f.numbers == nil {
		f.numbers, f.workspaces = map[string]int{}, map[uuid.UUID]bool{}
	}
	f.numbers[order.To]++
	f.workspaces[order.WorkspaceID] = true
	return f.numbers[order.To]
}

// suspectsAccount reports whether the operator's account is the likely cause of the 403 responses.
// accepted reports that the trunk has accepted a call since its last change. If only one of several
// workspaces is refused, the limit is higher.
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
