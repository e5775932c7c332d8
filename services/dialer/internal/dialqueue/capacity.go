package dialqueue

import (
	"math"
	"time"

	"github.com/google/uuid"
)

// Limit is a limit that all workspaces share: that of all calls, or that of the trunk.
type Limit struct {
	// Live is how many calls there may be at a time, PerSecond how many may be originated in a second.
	Live, PerSecond int
}

// Shared is a shared limit and how much of it is used.
type Shared struct {
	Limit
	InUse  int
	Bucket Bucket
}

// Workers are the requests that one process can work on at a time.
type Workers struct {
	All, Free int
	// Busy counts the requests under way by workspace.
	Busy map[uuid.UUID]int
}

// WorkspaceDemand is a workspace with due requests.
type WorkspaceDemand struct {
	ID uuid.UUID
	// Barred: the workspace may not dial. Its requests are only taken to be blocked, which needs a worker
	// and no capacity.
	Barred bool
	// Waiting requests are due. InUse requests are claimed or in a call, of at most MaxLive.
	Waiting, InUse, MaxLive int
	Bucket                  Bucket
	// SinceClaim is how long ago a request of the workspace was claimed; nil: never.
	SinceClaim *time.Duration
}

// Allocation is how many requests each workspace may begin.
type Allocation struct {
	// Shares, NoCapacity and OwnLimit go with the workspaces. NoCapacity: due requests were left although a
	// worker was free. OwnLimit: the limit that was reached is the workspace's own.
	Shares               []int
	NoCapacity, OwnLimit []bool
	// Last is the highest index of a workspace that received a request; -1 if none did.
	Last int
	// Wait is how long until a token allows another dial; zero if tokens are not what is missing.
	Wait time.Duration
}

// Allocate gives each workspace in turn one request until capacity, requests or workers are used up.
func Allocate(shared []Shared, workers Workers, workspaces []WorkspaceDemand) Allocation {
	a := allocator{shared: shared, workers: workers, result: Allocation{
		Shares: make([]int, len(workspaces)), NoCapacity: make([]bool, len(workspaces)),
		OwnLimit: make([]bool, len(workspaces)), Last: -1,
	}}
	for more := true; more; {
		more = false
		for i, w := range workspaces {
			if a.give(w, a.result.Shares[i]) {
				a.result.Shares[i]++
				a.result.Last, more = max(a.result.Last, i), true
			}
		}
	}
	for i, w := range workspaces {
		n := a.result.Shares[i]
		if n >= w.Waiting || !a.worker(w, n) {
			continue
		}
		a.result.NoCapacity[i], a.result.OwnLimit[i] = true, w.usedUp(n)
		if wait := a.wait(w, n); wait > 0 && (a.result.Wait == 0 || wait < a.result.Wait) {
			a.result.Wait = wait
		}
	}
	return a.result
}

// allocator is an allocation under way; out counts the requests that were given from the shared limits.
type allocator struct {
	shared  []Shared
	workers Workers
	out     int
	result  Allocation
}

// give gives one more request to a workspace that has n, if it may have it.
func (a *allocator) give(w WorkspaceDemand, n int) bool {
	if n >= w.Waiting || !a.worker(w, n) || !w.Barred && (!a.channel(w, n) || !a.token(w, n)) {
		return false
	}
	a.workers.Free--
	if !w.Barred {
		a.out++
	}
	return true
}

func (a *allocator) worker(w WorkspaceDemand, n int) bool {
	return open(a.workers.All, a.workers.Free, a.workers.Busy[w.ID]+n)
}

func (a *allocator) channel(w WorkspaceDemand, n int) bool {
	for _, s := range a.shared {
		if !open(s.Live, s.Live-s.InUse-a.out, w.InUse+n) {
			return false
		}
	}
	return w.InUse+n < w.MaxLive
}

func (a *allocator) token(w WorkspaceDemand, n int) bool {
	for _, s := range a.shared {
		if !s.Bucket.has(a.out, w.needsReserve(n, s.PerSecond)) {
			return false
		}
	}
	return w.Bucket.has(n, false)
}

// wait returns how long a workspace that has a channel waits for a token.
func (a *allocator) wait(w WorkspaceDemand, n int) (wait time.Duration) {
	if w.Barred || !a.channel(w, n) {
		return 0
	}
	wait = w.Bucket.wait(n, false)
	for _, s := range a.shared {
		wait = max(wait, s.Bucket.wait(a.out, w.needsReserve(n, s.PerSecond)))
	}
	return wait
}

// needsReserve reports whether a workspace must leave the reserve of a shared bucket to others: it
// dialed more than a hundredth of the shared rate lately.
func (w WorkspaceDemand) needsReserve(n, perSecond int) bool {
	return n > 0 || w.SinceClaim != nil && w.SinceClaim.Seconds()*float64(perSecond) < 100
}

// usedUp reports whether the workspace's own limits are used up after n requests.
func (w WorkspaceDemand) usedUp(n int) bool {
	return !w.Barred && (w.InUse+n >= w.MaxLive || !w.Bucket.has(n, false))
}

// open reports whether a workspace that uses own units may take one more. all is the limit, and
// left is how many units are free. The last tenth of all, rounded up, is reserved for workspaces
// that use less than a hundredth of all. A workspace that uses none may take one if any is left.
func open(all, left, own int) bool {
	return left > 0 && (left > (all+9)/10 || own < max(1, all/100))
}

// Bucket is a token bucket: one token is one origination.
type Bucket struct {
	// Rate is how many tokens are added in a second.
	Rate   float64
	Tokens float64
}

// NewBucket returns a bucket that had tokens and was filled for some time since. If the scope was never
// used, tokens is nil and the bucket is full.
func NewBucket(rate float64, tokens *float64, since time.Duration) Bucket {
	b := Bucket{Rate: rate}
	b.Tokens = b.burst()
	if tokens != nil {
		b.Tokens = min(b.Tokens, *tokens+max(0, since.Seconds())*rate)
	}
	return b
}

// Take returns the tokens that are left after n were taken; n below 0 returns tokens.
func (b Bucket) Take(n int) float64 { return min(b.burst(), b.Tokens-float64(n)) }

// burst is how many tokens a bucket holds: those of a tenth of a second, and at least one.
func (b Bucket) burst() float64 {
	if b.Rate <= 0 {
		return 0
	}
	return max(1, b.Rate/10)
}

// reserve is the part of a shared bucket that is left to small workspaces: a tenth of what it holds
// beyond one token.
func (b Bucket) reserve() float64 { return (b.burst() - 1) / 10 }

// missing is how many tokens are missing for one more origination after n.
func (b Bucket) missing(n int, leaveReserve bool) float64 {
	needed := float64(n) + 1
	if leaveReserve {
		needed += b.reserve()
	}
	return needed - b.Tokens
}

func (b Bucket) has(n int, leaveReserve bool) bool {
	return b.Rate > 0 && b.missing(n, leaveReserve) <= 1e-6
}

func (b Bucket) wait(n int, leaveReserve bool) time.Duration {
	if b.Rate <= 0 {
		return 0
	}
	return time.Duration(math.Ceil(max(0, b.missing(n, leaveReserve)-1e-6) / b.Rate * float64(time.Second)))
}
