package dispatching

import (
	"testing"

	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
)

// Who waits for a host is served when its last place was given back because a url was changed, and nothing of that host will end.
func TestLanes_AHostThatIsLeftIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	l := newLanes(40, 1)
	mover, waiter := newEndpoint(l), newEndpoint(l)
	waiter.work.URL = mover.work.URL
	mover.look(true, false)
	turn, rooms := l.ask()
	waiter.look(true, false)
	if _, more := l.ask(); len(more) != 0 {
		t.Fatalf("room beyond the cap of a host: %v", more)
	}
	mover.work.URL = "https://moved.example/"
	fly, _ := l.got(turn, rooms, []delivery.Work{mover.work})
	if len(fly) != 1 {
		t.Fatalf("%d begin, want the one that moved", len(fly))
	}
	turn, rooms = l.ask()
	wantRooms(t, rooms, 1)
	wantEqual(t, "subscription that waited for the host", rooms[0].SubscriptionID, waiter.work.SubscriptionID)
	l.got(turn, rooms, nil)
	l.end(l.begin(fly[0]), good)
	check(t, l)
}

// A subscription that moved to another host waits no longer for the one it left, however long that hangs.
func TestLanes_WhoMovedWaitsForItsNewHost(t *testing.T) {
	t.Parallel()
	l := newLanes(40, 1)
	hanging, mover := newEndpoint(l), newEndpoint(l)
	mover.work.URL = hanging.work.URL
	open := hanging.open(1)
	mover.look(true, false)
	if _, rooms := l.ask(); len(rooms) != 0 {
		t.Fatalf("room beyond the cap of a host: %v", rooms)
	}
	mover.work.URL = "https://moved.example/"
	mover.look(true, false)
	turn, rooms := l.ask()
	wantRooms(t, rooms, 1)
	wantEqual(t, "subscription that moved", rooms[0].SubscriptionID, mover.work.SubscriptionID)
	l.got(turn, rooms, nil)
	hanging.end(open, hung)
	check(t, l)
}
