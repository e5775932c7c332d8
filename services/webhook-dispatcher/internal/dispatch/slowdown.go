package dispatch

import "time"

const (
	// recoveryTime is the time for which an endpoint must respond quickly until a slowdown has
	// ended.
	recoveryTime = 5 * time.Second
	// maxOtherDelay is the maximum delay of another cause in a delivery that counts as delayed by
	// its own endpoint.
	maxOtherDelay = 5 * time.Second
)

// slowdown is the last period in which an endpoint delayed its own deliveries: it was slow, failed
// or was paused.
type slowdown struct {
	since, until time.Time
	active       bool
}

// update starts a slowdown, continues it, or ends it if active is false.
func (s *slowdown) update(active bool, now time.Time) {
	if active && !s.active && now.Sub(s.until) > recoveryTime {
		s.since = now
	}
	if (active || s.active) && now.After(s.until) {
		s.until = now
	}
	s.active = active
}

// resume ends a pause. Deliveries that were queued before now count as delayed by the endpoint.
func (s *slowdown) resume(now time.Time) { *s = slowdown{until: now, active: true} }

// delayed reports whether a delivery was delayed by its endpoint, and for at most maxOtherDelay by
// another cause. created is the time of its event.
func (s *slowdown) delayed(created, queued, now time.Time) bool {
	until, from := s.until, queued
	if s.active {
		until = now
	}
	if from.Before(s.since) {
		from = s.since
	}
	part := until.Sub(from)
	return part > maxOtherDelay && now.Sub(created)-part <= maxOtherDelay
}
