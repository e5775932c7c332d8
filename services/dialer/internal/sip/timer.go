package sip

import (
	"math"
	"sync"
	"time"
)

// Never is longer than any call.
const Never = time.Duration(math.MaxInt64)

// Timer is one session's. The zero value asks for nothing and never runs out.
type Timer struct {
	mu                    sync.Mutex
	requested, agreed     Expires
	weRefresh, refreshing bool
	lastRefresh, retryAt  time.Time
}

// Want has the session ask for an interval when it is set up.
func (t *Timer) Want(every time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requested = Expires{After: every}
}

// Wanted is what to ask for; zero: nothing.
func (t *Timer) Wanted() Expires {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.requested
}

// Lengthen takes the least that a 422 names in Min-SE; false: it names nothing that we had not offered.
func (t *Timer) Lengthen(minSE string) bool {
	least, ok := ParseSessionExpires(minSE)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !ok || least.After <= t.requested.After || t.requested.After == 0 {
		return false
	}
	t.requested.After = least.After
	return true
}

// Agree begins the timer anew with the Session-Expires that answers a request of ours; empty: there is none. Who refreshes is us, when it does not say.
func (t *Timer) Agree(value string, now time.Time) {
	e, _ := ParseSessionExpires(value)
	t.Set(e, e.Refresher != UAS, now)
}

// Set begins the timer anew.
func (t *Timer) Set(e Expires, ours bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.agreed, t.weRefresh, t.refreshing, t.lastRefresh, t.retryAt = e, ours, false, now, time.Time{}
}

// Next is when something is to be done, and whether it is a refresh of ours; else the far end is lost then.
func (t *Timer) Next(now time.Time) (wait time.Duration, mine bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.agreed.After == 0 || t.refreshing:
		return Never, false
	case !t.weRefresh:
		return t.lastRefresh.Add(t.agreed.Lost()).Sub(now), false
	case !t.retryAt.IsZero():
		return t.retryAt.Sub(now), true
	}
	return t.lastRefresh.Add(t.agreed.Refresh()).Sub(now), true
}

// StartRefresh says that a refresh is under way: nothing else is due.
func (t *Timer) StartRefresh() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refreshing = true
}

// Failed puts a refresh off; false: there is no time left for another.
func (t *Timer) Failed(pause time.Duration, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refreshing, t.retryAt = false, now.Add(pause)
	return t.retryAt.Before(t.lastRefresh.Add(t.agreed.Lost()))
}

// Current is what holds; zero: nothing.
func (t *Timer) Current() Expires {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.agreed
}
