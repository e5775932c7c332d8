package dispatching

import (
	"testing"
	"testing/synctest"
	"time"

	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
)

// Claims that follow one another begin where the last one ended, a claim that came up short does not tell that there is no more, and
// now and then one begins at the beginning.
func TestLanes_ABacklogIsClaimedOnwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(512, 128)
		e := newEndpoint(l)
		claim := func(take int, lag time.Duration) (within time.Duration) {
			t.Helper()
			turn, rooms := l.ask()
			if len(rooms) != 1 {
				t.Fatalf("rooms = %+v, want one", rooms)
			}
			wantAtLeast(t, "room", rooms[0].Total, take)
			if take < 0 {
				take = rooms[0].Total
			}
			var work []delivery.Work
			for i := range take {
				one := e.work
				one.Lag = lag + time.Duration(take-i)*time.Millisecond
				work = append(work, one)
			}
			fly, _ := l.got(turn, rooms, work)
			for _, w := range fly {
				l.end(l.begin(w), good)
			}
			return rooms[0].Within
		}
		e.look(true, false)
		if within := claim(-1, time.Minute); within != 0 {
			t.Errorf("the first claim is bounded by %s, want the beginning", within)
		}
		time.Sleep(100 * time.Millisecond)
		if within, want := claim(-1, 50*time.Second), time.Minute+time.Millisecond+100*time.Millisecond+overlap; within != want {
			t.Errorf("the second goes back %s, want %s: where the first one ended, and the overlap", within, want)
		}
		if within, want := claim(3, 40*time.Second), 50*time.Second+time.Millisecond+overlap; within != want {
			t.Errorf("the third goes back %s, want %s", within, want)
		}
		if e.l.seat(e.work.SubscriptionID, e.work.URL) {
			t.Error("a seat for fresh work, though nobody has looked for older")
		}
		if within := claim(-1, time.Minute); within != 0 {
			t.Errorf("behind a short claim the next is bounded by %s, want the beginning", within)
		}
		time.Sleep(sweepEach)
		if within := claim(-1, time.Minute); within != 0 {
			t.Errorf("%s later a claim is bounded by %s, want the beginning", sweepEach, within)
		}
		turn, rooms := l.ask()
		l.got(turn, rooms, nil)
		turn, rooms = l.ask()
		l.got(turn, rooms, nil)
		if !e.l.seat(e.work.SubscriptionID, e.work.URL) {
			t.Error("no seat, though a claim from the beginning found nothing")
		}
	})
}
