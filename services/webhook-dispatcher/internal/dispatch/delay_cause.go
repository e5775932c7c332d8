package dispatch

import "time"

const (
	// recoveryTime is the minimum time between two slowdowns of an endpoint. If the endpoint is slow
	// again earlier, the previous slowdown continues.
	recoveryTime = 5 * time.Second
	// maxOtherDelay is the maximum delay that other causes than the endpoint may add. If they
	// delayed a delivery longer, the delivery does not count as delayed by its endpoint.
	maxOtherDelay = 5 * time.Second
)

// slowdown is the last period in which an endpoint delayed its own deliveries, because it was slow,
// failed or was paused.
type slowdown struct {
	since, until time.Time
	active       bool
}

// update starts or continues a slowdown if active is true, and ends it if active is false.
func (s *slowdown) update(active bool, now time.Time) {
	if active && !s.active && now.Sub(s.until) > recoveryTime {
		s.since = now
	}
	if (active || s.active) && now.After(s.until) {
		s.until = now
	}
	s.active = active
}

// endPause ends a pause. Deliveries that were queued before now count as delayed by the endpoint.
func (s *slowdown) endPause(now time.Time) { *s = slowdown{until: now, active: true} }

// causedDelay reports whether the endpoint delayed a delivery by more than maxOtherDelay, while
// other causes delayed it by at most maxOtherDelay. created is the time of the event, and queued
// the time at which the delivery was queued.
func (s *slowdown) causedDelay(created, queued, now time.Time) bool {
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
