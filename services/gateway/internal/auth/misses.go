package auth

import (
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"ringfence.dev/services/gateway/internal/ratelimit"
)

// unknownKeyAddresses records which client addresses sent an unknown key or token within the last
// minute. A request from such an address is counted before its key or token is checked.
//
// One minute is enough, because after a minute the whole limit of the address is available again.
// If the cache is full and removes an address, one unknown key from this address is not counted.
type unknownKeyAddresses struct {
	last *lru.Cache[string, time.Time] // the time of the last unknown key or token of each address
}

func newUnknownKeyAddresses() *unknownKeyAddresses {
	return &unknownKeyAddresses{last: newCache[string, time.Time]()}
}

func (m *unknownKeyAddresses) add(address string) { m.last.Add(address, time.Now()) }

func (m *unknownKeyAddresses) has(address string) bool {
	at, ok := m.last.Get(address)
	return ok && time.Since(at) < ratelimit.Window
}
