package dialqueue

import (
	"math"
	"time"

	"github.com/google/uuid"
)

// Limit is a limit that all workspaces share: the limit of all calls together, or the limit of the
// trunks.
type Limit struct {
	// Live is the highest number of concurrent calls. PerSecond is the highest number of new calls
	// per second.
	Live, PerSecond int
}

// Shared is a limit that all workspaces share, and how much of it is in use.
type Shared struct {
	Limit
	InUse  int
	Bucket Bucket
}

// Workers contains the numbers of requests on which one process can work at a time. All is the
// maximum. Free is how many more it can start now.
type Workers struct {
	All, Free int
	// Busy is the number of requests in progress, by workspace.
	Busy map[uuid.UUID]int
}

// WorkspaceDemand contains the due requests of a workspace, and the limits of this workspace.
type WorkspaceDemand struct {
	ID uuid.UUID
	// Barred means that the workspace may not dial. Its requests are claimed only to be blocked, which
	// needs a worker, but no channel and no token.
	Barred bool
	// Waiting is the number of due requests. InUse is the number of requests that are claimed or in
	// a call. MaxLive is the limit of InUse.
	Waiting, InUse, MaxLive int
	Bucket                  Bucket
	// SinceClaim is the time since a claim last took a request of the workspace. It is nil if no claim
	// has taken one.
	SinceClaim *time.Duration
}

// Allocation is the result of Allocate: how many requests each workspace may start.
type Allocation struct {
	// Shares is the number of requests that each workspace may start.
	Shares []int
	// NoCapacity is true for a workspace with due requests that must wait although a worker is free.
	NoCapacity []bool
	// OwnLimit is true if these requests wait because of the workspace's own limit.
	OwnLimit []bool
	// Last is the highest index of a workspace that may start a request, or -1.
	Last int
	// Wait is the time until a token permits another dial. Wait is zero if no request waits for a
	// token.
	Wait time.Duration
}

// Allocate gives one request to each workspace in turn, and repeats this until the capacity, the
// requests or the workers are used up.
func Allocate(shared []Shared, workers Workers, workspaces []WorkspaceDemand) Allocation {
	a := allocator{shared: shared, workers: workers, result: Allocation{
		Shares: make([]int, len(workspaces)), NoCapacity: make([]bool, len(workspaces)),
		OwnLimit: make([]bool, len(workspaces)), Last: -1,
	}}
	for more := true; more; {
		more = false
		for i, w := range workspaces {
			if a.allocateOne(w, a.result.Shares[i]) {
				a.result.Shares[i]++
				a.result.Last, more = max(a.result.Last, i), true
			}
		}
	}
	for i, w := range workspaces {
		n := a.result.Shares[i]
		if n >= w.Waiting || !a.hasWorker(w, n) {
			continue
		}
		a.result.NoCapacity[i], a.result.OwnLimit[i] = true, w.ownLimitReached(n)
		if wait := a.tokenWait(w, n); wait > 0 && (a.result.Wait == 0 || wait < a.result.Wait) {
			a.result.Wait = wait
		}
	}
	return a.result
}

// allocated is the number of requests that have been allocated from the shared limits.
type allocator struct {
	shared    []Shared
	workers   Workers
	allocated int
	result    Allocation
}

// allocateOne allocates one more request to a workspace that already has n allocated requests. It
// returns false if a limit forbids it.
func (a *allocator) allocateOne(w WorkspaceDemand, n int) bool {
	if n >= w.Waiting || !a.hasWorker(w, n) || !w.Barred && (!a.hasChannel(w, n) || !a.hasToken(w, n)) {
		return false
	}
	a.workers.Free--
	if !w.Barred {
		a.allocated++
	}
	return true
}

func (a *allocator) hasWorker(w WorkspaceDemand, n int) bool {
	return mayTake(a.workers.All, a.workers.Free, a.workers.Busy[w.ID]+n)
}

func (a *allocator) hasChannel(w WorkspaceDemand, n int) bool {
	for _, s := range a.shared {
		if !mayTake(s.Live, s.Live-s.InUse-a.allocated, w.InUse+n) {
			return false
		}
	}
	return w.InUse+n < w.MaxLive
}

func (a *allocator) hasToken(w WorkspaceDemand, n int) bool {
	for _, s := range a.shared {
		if !s.Bucket.hasTokens(a.allocated, w.needsReserve(n, s.PerSecond)) {
			return false
		}
	}
	return w.Bucket.hasTokens(n, false)
}

// tokenWait returns the time until a token permits another request of the workspace. It returns 0
// if the workspace has no free channel.
func (a *allocator) tokenWait(w WorkspaceDemand, n int) (wait time.Duration) {
	if w.Barred || !a.hasChannel(w, n) {
		return 0
	}
	wait = w.Bucket.waitTime(n, false)
	for _, s := range a.shared {
		wait = max(wait, s.Bucket.waitTime(a.allocated, w.needsReserve(n, s.PerSecond)))
	}
	return wait
}

// needsReserve reports whether a shared bucket must keep its reserve when this workspace takes a
// token. Only workspaces that dial less than a hundredth of the shared rate may use the reserve.
func (w WorkspaceDemand) needsReserve(n, perSecond int) bool {
	return n > 0 || w.SinceClaim != nil && w.SinceClaim.Seconds()*float64(perSecond) < 100
}

// ownLimitReached reports whether the workspace's own limits forbid another request after n more
// requests.
func (w WorkspaceDemand) ownLimitReached(n int) bool {
	return !w.Barred && (w.InUse+n >= w.MaxLive || !w.Bucket.hasTokens(n, false))
}

// mayTake reports whether a workspace that uses `used` units of a limit may take one of the free
// units. The last tenth of the limit, rounded up, is reserved for workspaces that use no unit, or
// less than a hundredth of the limit.
func mayTake(limit, free, used int) bool {
	return free > 0 && (free > (limit+9)/10 || used < max(1, limit/100))
}

// Bucket is a token bucket for a rate limit. Each new call takes one token.
type Bucket struct {
	// Rate is the number of tokens that the bucket gains per second.
	Rate   float64
	Tokens float64
}

// NewBucket returns a bucket that contained the given tokens before the elapsed time and was
// filled since then. If tokens is nil, the bucket is full.
func NewBucket(rate float64, tokens *float64, elapsed time.Duration) Bucket {
	b := Bucket{Rate: rate}
	b.Tokens = b.capacity()
	if tokens != nil {
		b.Tokens = min(b.Tokens, *tokens+max(0, elapsed.Seconds())*rate)
	}
	return b
}

// Take returns how many tokens remain if n tokens are taken. If n is negative, tokens are returned
// to the bucket.
func (b Bucket) Take(n int) float64 { return min(b.capacity(), b.Tokens-float64(n)) }

// capacity returns the size of the bucket: the tokens of a tenth of a second, but at least one
// token.
func (b Bucket) capacity() float64 {
	if b.Rate <= 0 {
		return 0
	}
	return max(1, b.Rate/10)
}

// reservedTokens returns the number of tokens that are reserved for workspaces with few calls: a
// tenth of the capacity beyond one token.
func (b Bucket) reservedTokens() float64 { return (b.capacity() - 1) / 10 }

// missingTokens returns how many tokens are missing for one more call after n calls. If it is zero
// or negative, there are enough tokens.
func (b Bucket) missingTokens(n int, leaveReserve bool) float64 {
	needed := float64(n) + 1
	if leaveReserve {
		needed += b.reservedTokens()
	}
	return needed - b.Tokens
}

func (b Bucket) hasTokens(n int, leaveReserve bool) bool {
	return b.Rate > 0 && b.missingTokens(n, leaveReserve) <= 1e-6
}

func (b Bucket) waitTime(n int, leaveReserve bool) time.Duration {
	if b.Rate <= 0 {
		return 0
	}
	return time.Duration(math.Ceil(max(0, b.missingTokens(n, leaveReserve)-1e-6) / b.Rate * float64(time.Second)))
}
