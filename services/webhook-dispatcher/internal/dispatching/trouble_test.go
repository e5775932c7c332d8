package dispatching

import (
	"testing"
	"testing/synctest"
	"time"

	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
)

// TestTrouble_TellsWhoKeptADeliveryWaiting: only what waited in the queue while its endpoint was in trouble is held by it, and only when the rest was in time.
func TestTrouble_TellsWhoKeptADeliveryWaiting(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	on := trouble{since: ago(100), seen: ago(30), on: true}
	for _, tt := range []struct {
		name         string
		trouble      trouble
		made, queued int
		want         bool
	}{
		{"an endpoint in trouble before it was made, and still", on, 60, 60, true},
		{"queued a little late", on, 60, 57, true},
		{"queued late: it waited for us first", on, 60, 50, false},
		{"it came before the trouble", on, 110, 110, false},
		{"it came just before the trouble", on, 103, 103, true},
		{"it waited no time to speak of", on, 4, 4, false},
		{"the trouble was over long before it was sent", trouble{since: ago(100), seen: ago(30)}, 60, 60, false},
		{"the trouble was over just before it was sent", trouble{since: ago(100), seen: ago(3)}, 60, 60, true},
		{"no trouble", trouble{}, 60, 60, false},
	} {
		if got := tt.trouble.kept(ago(tt.made), ago(tt.queued), now); got != tt.want {
			t.Errorf("%s: held by its endpoint %v, want %v", tt.name, got, tt.want)
		}
	}
}

// waiting is a delivery whose event was made so long ago, and queued at once.
func (e endpoint) waiting(wait time.Duration) delivery.Work {
	w := e.work
	w.CreatedAt, w.Waited = time.Now().Add(-wait), wait
	return w
}

// TestLanes_KnowWhatAnEndpointKeptWaiting: one that is slow, fails or was paused has kept its own waiting; a quick one has not, however full its window is.
func TestLanes_KnowWhatAnEndpointKeptWaiting(t *testing.T) {
	for _, tt := range []struct {
		name string
		// lives is half a minute of the endpoint's life before a seat is free.
		lives func(e endpoint)
		want  bool
	}{
		{"quick, and full all the while", func(e endpoint) {
			for range 60 {
				e.caught()
				open := e.open(100)
				time.Sleep(500 * time.Millisecond)
				e.end(open, delivery.Answer{Code: 200, Took: 500 * time.Millisecond})
			}
		}, false},
		{"slow", func(e endpoint) {
			for range 20 {
				e.caught()
				open := e.open(100)
				time.Sleep(1500 * time.Millisecond)
				e.end(open, delivery.Answer{Code: 200, Took: 1500 * time.Millisecond})
			}
		}, true},
		{"hanging", func(e endpoint) {
			e.caught()
			open := e.open(100)
			time.Sleep(30 * time.Second)
			e.end(open, hung)
		}, true},
		{"refusing at once", func(e endpoint) {
			for range 30 {
				e.caught()
				open := e.open(100)
				time.Sleep(time.Second)
				e.end(open, delivery.Answer{Code: 503, Failure: delivery.NotOK})
			}
		}, true},
		{"idle: we were slow", func(endpoint) { time.Sleep(30 * time.Second) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLanes(512, 128)
				e := newEndpoint(l)
				e.end(e.open(1), good)
				tt.lives(e)
				e.caught()
				if !l.seat(e.work.SubscriptionID, e.work.URL) {
					t.Fatal("no seat")
				}
				f := l.begin(e.waiting(28 * time.Second))
				if f.held != tt.want {
					t.Errorf("held by its endpoint %v, want %v", f.held, tt.want)
				}
				l.end(f, good)
				check(t, l)
			})
		})
	}
}

// TestLanes_WhatAPauseHeldIsTheEndpointsOwn: deliveries keep their due times through a pause.
func TestLanes_WhatAPauseHeldIsTheEndpointsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(512, 128)
		e := newEndpoint(l)
		l.lane(e.work.SubscriptionID).trouble.resume(time.Now())
		for _, wait := range []time.Duration{time.Hour, time.Second} {
			if !l.seat(e.work.SubscriptionID, e.work.URL) {
				t.Fatal("no seat")
			}
			f := l.begin(e.waiting(wait))
			if want := wait == time.Hour; f.held != want {
				t.Errorf("what waited for %s: held %v, want %v", wait, f.held, want)
			}
			l.end(f, good)
		}
	})
}
