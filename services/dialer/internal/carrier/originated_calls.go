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
	mu          sync.Mutex
	recent, old map[uuid.UUID]struct{}
}

// AddIfNew stores a call id. It returns false if the id is already stored.
func (a *OriginatedCalls) AddIfNew(callID uuid.UUID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, isRecent := a.recent[callID]
	_, isOld := a.old[callID]
	if isRecent || isOld {
		return false
	}
	if a.recent == nil || len(a.recent) == minRemembered {
		a.recent, a.old = map[uuid.UUID]struct{}{}, a.recent
	}
	a.recent[callID] = struct{}{}
	return true
}
