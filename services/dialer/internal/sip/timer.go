package sip

import (
	"math"
	"sync"
	"time"
)

// Never is a duration longer than any call.
const Never = time.Duration(math.MaxInt64)

// Timer is the session timer of one leg (RFC 4028). The zero value requests no timer and never
// expires. Timer is safe for concurrent use.
type Timer struct {
	mu                    sync.Mutex
	requested, agreed     Expires
	weRefresh, refreshing bool
	lastRefresh, retryAt  time.Time
}

// RequestInterval sets the session interval that the INVITE requests.
func (t *Timer) RequestInterval(every time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requested = Expires{After: every}
}

// RequestedInterval returns the interval to request. The zero value means that no interval is
// requested.
func (t *Timer) RequestedInterval() Expires {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.requested
}

// Lengthen raises the requested interval to the Min-SE of a 422. Lengthen returns false if the
// Min-SE is not longer than the requested interval.
func (t *Timer) Lengthen(minSE string) bool {
	minimum, ok := ParseSessionExpires(minSE)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !ok || minimum.After <= t.requested.After || t.requested.After == 0 {
		return false
	}
	t.requested.After = minimum.After
	return true
}

// StartFromHeader starts the timer with the Session-Expires of a response to this side's request.
// If value is empty, the session has no timer. If the header names no refresher, this side
// refreshes.
func (t *Timer) StartFromHeader(value string, now time.Time) {
	e, _ := ParseSessionExpires(value)
	t.Start(e, e.Refresher != UAS, now)
}

// Start starts the timer. isRefresher is true if this side refreshes.
func (t *Timer) Start(e Expires, isRefresher bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.agreed, t.weRefresh, t.refreshing, t.lastRefresh, t.retryAt = e, isRefresher, false, now, time.Time{}
}

// Next returns the time until the next action. If isRefresh is true, the action is a refresh by
// this side. Otherwise the action is a hangup, because the peer has not refreshed in time.
func (t *Timer) Next(now time.Time) (wait time.Duration, isRefresh bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.agreed.After == 0 || t.refreshing:
		return Never, false
	case !t.weRefresh:
		return t.lastRefresh.Add(t.agreed.HangupTime()).Sub(now), false
	case !t.retryAt.IsZero():
		return t.retryAt.Sub(now), true
	}
	return t.lastRefresh.Add(t.agreed.RefreshTime()).Sub(now), true
}

// StartRefresh records that a refresh is in progress. Until it has ended, Next returns Never.
func (t *Timer) StartRefresh() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refreshing = true
}

// RetryRefresh schedules another refresh after pause. It returns false if the peer would hang up
// before that refresh.
func (t *Timer) RetryRefresh(pause time.Duration, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refreshing, t.retryAt = false, now.Add(pause)
	return t.retryAt.Before(t.lastRefresh.Add(t.agreed.HangupTime()))
}

// Current returns the agreed session timer. The zero value means that the session has no timer.
func (t *Timer) Current() Expires {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.agreed
}
