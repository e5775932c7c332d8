package carrier

import (
	"sync"

	"github.com/google/uuid"
)

// minRemembered is how many call ids Asked knows after any number of calls: minutes at the highest pace.
const minRemembered = 1 << 16

// OriginatedCalls is what a carrier was asked to originate by this process, so that it is not asked twice. It is a second net: the fence is the first, and holds
// for all processes and for good; this one holds for one process and its latest 65 536 calls. The zero value is ready.
type OriginatedCalls struct {
	mu         sync.Mutex
	young, old map[uuid.UUID]struct{}
}

// First says, once for a call id, that it was not asked before.
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
