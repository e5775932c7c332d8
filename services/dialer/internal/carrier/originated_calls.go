package carrier

import (
	"sync"

	"github.com/google/uuid"
)

// minRemembered is the number of call ids that OriginatedCalls remembers at least. At the highest
// rate, that is some minutes.
const minRemembered = 1 << 16

// OriginatedCalls remembers the calls that this process has originated, so that it does not
// originate one twice. The fence prevents that for all processes and permanently; this check is a
// second one for the latest 65,536 calls of one process. The zero value is ready to use. It is safe
// for concurrent use.
type OriginatedCalls struct {
	mu         sync.Mutex
	young, old map[uuid.UUID]struct{}
}

// First reports whether the call id is new, and remembers it.
func (a *OriginatedCalls) First(callID uuid.UUID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, young := a.young[callID]
	_, old := a.old[callID]
	if young || old {
		return false
	}
	if a.young == nil || len(a.young) == minRemembered {
		a.young, a.old = map[uuid.UUID]struct{}{}, a.young
	}
	a.young[callID] = struct{}{}
	return true
}
