package carrier

import (
	"sync"

	"github.com/google/uuid"
)

// minRemembered is the minimum number of call ids that OriginatedCalls stores. At the highest rate
// of calls, this many calls are originated within a few minutes.
const minRemembered = 1 << 16

// OriginatedCalls stores the ids of originated calls, at least the latest 65,536, so that this
// process does not originate one of them twice. The main protection is the fence in the database.
// The zero value is ready to use. OriginatedCalls is safe for concurrent use.
type OriginatedCalls struct {
	mu         sync.Mutex
	young, old map[uuid.UUID]struct{}
}

// AddIfNew stores a call id. It returns false if the id is already stored.
func (a *OriginatedCalls) AddIfNew(callID uuid.UUID) bool {
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
