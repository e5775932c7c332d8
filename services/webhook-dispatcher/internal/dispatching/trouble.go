package dispatching

import (
	"time"

	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
)

const (
	// lull is how long an endpoint may seem well within one trouble.
	lull = 5 * time.Second
	// own is the most of its delay that may be ours in a delivery that waited for its endpoint; what waited no longer for that was not held.
	own = 5 * time.Second
)

// trouble is since when an endpoint keeps its own deliveries waiting, slow or failing, and when that was seen last; on: it does now.
type trouble struct {
	since, seen time.Time
	on          bool
}

// note what is so from now on.
func (t *trouble) note(on bool, now time.Time) {
	if on && !t.on && now.Sub(t.seen) > lull {
		t.since = now
	}
	if (on || t.on) && now.After(t.seen) {
		t.seen = now
	}
	t.on = on
}

// resume is the end of a pause: however long something waited, that was why.
func (t *trouble) resume(now time.Time) { *t = trouble{seen: now, on: true} }

// kept says that what was made and queued at these times would begin in time now but for its endpoint.
func (t *trouble) kept(made, queued, now time.Time) bool {
	until, from := t.seen, queued
	if t.on {
		until = now
	}
	if from.Before(t.since) {
		from = t.since
	}
	part := until.Sub(from)
	return part > own && now.Sub(made)-part <= own
}

// judge notes whether the lane's endpoint keeps its deliveries waiting: a request is open for long, or its window is narrower than a stranger's.
func (one *lane) judge(now time.Time) { one.trouble.note(one.stalled || one.window < startWindow, now) }

// held says whether the lane's endpoint kept a delivery waiting whose request begins now.
func (one *lane) held(w delivery.Work, now time.Time) bool {
	return one.trouble.kept(w.CreatedAt, now.Add(-w.Waited), now)
}
