package trunks

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Selector chooses the trunk of an outbound call, so that no trunk exceeds its CallsPerSecond. All
// processes get an equal part of a trunk's rate. The zero value is ready to use. Selector is safe
// for concurrent use.
type Selector struct {
	mu           sync.Mutex
	buckets      map[uuid.UUID]*bucket
	processCount int // 0 means unknown, and counts as 1
}

// SetProcesses sets the number of processes that share the rate of the trunks.
func (s *Selector) SetProcesses(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processCount = n
}

// Candidates returns the active trunks that have a free channel and for which isUnavailable returns
// false. live contains the number of live calls of each trunk. The trunks are sorted by Priority,
// and then by the part of their channels that is in use.
func Candidates(active []Trunk, live map[uuid.UUID]int, isUnavailable func(uuid.UUID) bool) []Trunk {
	candidates := slices.DeleteFunc(slices.Clone(active), func(t Trunk) bool {
		return live[t.TrunkID] >= int(t.Channels) || isUnavailable(t.TrunkID)
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
// empty. If reserved is the id of a candidate, Next returns this trunk and takes no token, because
// an earlier call of Next has taken it.
//
// Otherwise Next takes a token of the first candidate that has one. If none has a token, it returns
// the first candidate, because the rate of all trunks together was already checked when the call
// request was claimed.
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
	return b.takeToken(float64(t.CallsPerSecond)/float64(max(s.processCount, 1)), now)
}

// bucket is a token bucket. It contains at most the tokens of one second, but can always contain
// one token.
type bucket struct {
	tokens   float64
	refilled time.Time
}

func (b *bucket) takeToken(perSecond float64, now time.Time) bool {
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
