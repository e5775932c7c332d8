package admitting

import (
	"maps"
	"sync"
	"time"

	"ringfence.dev/services/gateway/internal/quota"
)

// misses remembers which client addresses sent an unknown key or token within the last minute. A
// request from such an address is counted before its key is looked up or its token compared.
//
// One minute is enough: after a minute without a miss the address has its whole limit again.
type misses struct {
	now func() time.Time

	mu   sync.Mutex
	last map[string]time.Time // the last miss of each address
}

func newMisses() *misses { return &misses{now: time.Now, last: map[string]time.Time{}} }

// add records a miss of the address. If the memory is full, the entries that have expired are deleted.
func (m *misses) add(address string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.last) >= most {
		maps.DeleteFunc(m.last, func(_ string, at time.Time) bool { return m.now().Sub(at) >= quota.Window })
	}
	if len(m.last) >= most {
		clear(m.last) // at most one uncounted guess for each address
	}
	m.last[address] = m.now()
}

// has reports whether the address had a miss within the last minute.
func (m *misses) has(address string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.last[address]
	return ok && m.now().Sub(at) < quota.Window
}

// isGood reports whether the last look-up of the key found it. The answer can be stale; the key must
// still be looked up.
func (m *remembered[K, V]) isGood(key K) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.answers[key]
	return ok && known.err == nil
}
