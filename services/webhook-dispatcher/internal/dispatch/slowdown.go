package dispatch

import "time"

const (
	// recoveryTime is how long an endpoint must respond quickly until a slowdown has ended.
	recoveryTime = 5 * time.Second
	// maxOtherDelay is the part of a delay that the dispatcher may cause itself in a delivery that counts
	// as delayed by its endpoint.
	maxOtherDelay = 5 * time.Second
)

// slowdown is the last period in which an endpoint delayed its own deliveries: it was slow, failed or
// was paused.
type slowdown struct {
	since, until time.Time
	active       bool
}

// update stores whether the endpoint delays its deliveries from now on.
func (s *slowdown) update(active bool, now time.Time) {
	if active && !s.active && now.Sub(s.until) > recoveryTime {
		s.since = now
	}
	if (active || s.active) && now.After(s.until) {
		s.until = now
	}
	s.active = active
}

// resume ends a pause. Deliveries that are older than it were delayed by it.
func (s *slowdown) resume(now time.Time) { *s = slowdown{until: now, active: true} }

// delayed reports whether a delivery of an event that was created and queued at these times was
// delayed by its endpoint, and by nothing else for longer than ownTime.
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
