package trunks

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Selector chooses the trunk of an outbound call and enforces CallsPerSecond. Each process uses an
// equal part of a trunk's rate. The zero value can be used. The methods are safe for concurrent
// use.
type Selector struct {
	mu        sync.Mutex
	buckets   map[uuid.UUID]*bucket
	processes int // 0 means unknown and counts as 1
}

// SetProcesses sets the number of processes that share the rate of the trunks.
func (s *Selector) SetProcesses(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes = n
}

// Candidates returns the trunks that a call may be offered to, in the order in which they are
// tried. These are the trunks with a free channel for which unavailable returns false. live
// contains the number of live calls of each trunk.
//
// The trunk with the smaller Priority comes first. If the priorities are equal, the trunk with the
// smaller share of channels in use comes first.
func Candidates(active []Trunk, live map[uuid.UUID]int, unavailable func(uuid.UUID) bool) []Trunk {
	candidates := slices.DeleteFunc(slices.Clone(active), func(t Trunk) bool {
		return live[t.TrunkID] >= int(t.Channels) || unavailable(t.TrunkID)
	})
	slices.SortStableFunc(candidates, func(a, b Trunk) int {
		return cmp.Or(
			cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(live[a.TrunkID]*int(b.Channels), live[b.TrunkID]*int(a.Channels)),
		)
	})
	return candidates
}

// Next returns the candidate that is tried next, and the other candidates. candidates must not be
// empty.
//
// If reserved is the id of a candidate, Next returns that trunk and takes no token, because an
// earlier call of Next took the token. Otherwise Next returns the first candidate that has a token,
// and takes the token. If no candidate has a token, Next returns the first candidate, because the
// claim of the request has already limited the rate of all trunks together.
func (s *Selector) Next(candidates []Trunk, reserved string, now time.Time) (next Trunk, others []Trunk) {
	at := slices.IndexFunc(candidates, func(t Trunk) bool { return t.TrunkID.String() == reserved })
	if at < 0 {
		at = max(0, slices.IndexFunc(candidates, func(t Trunk) bool { return s.takeToken(t, now) }))
	}
	return candidates[at], slices.Delete(slices.Clone(candidates), at, at+1)
}

func (s *Selector) takeToken(t Trunk, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buckets == nil {
		s.buckets = map[uuid.UUID]*bucket{}
	}
	b := s.buckets[t.TrunkID]
	if b == nil {
		b = &bucket{}
		s.buckets[t.TrunkID] = b
	}
	return b.take(float64(t.CallsPerSecond)/float64(max(s.processes, 1)), now)
}

// bucket is a token bucket. Its capacity is the number of calls of one second, but at least one
// call.
type bucket struct {
	tokens   float64
	refilled time.Time
}

func (b *bucket) take(perSecond float64, now time.Time) bool {
	size := max(perSecond, 1)
	if b.refilled.IsZero() {
		b.tokens = size
	}
	b.tokens = min(size, b.tokens+now.Sub(b.refilled).Seconds()*perSecond)
	b.refilled = now
	if b.tokens < 1 || perSecond <= 0 {
		return false
	}
	b.tokens--
	return true
}
