package dispatching

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

var good, hung = delivery.Answer{Code: 200}, delivery.Answer{Failure: delivery.Timeout, Took: 10 * time.Second}

// endpoint is one subscription with a host of its own, as the tests below use it.
type endpoint struct {
	l    *lanes
	work delivery.Work
}

func newEndpoint(l *lanes) endpoint {
	id := uuid.New()
	return endpoint{l, delivery.Work{SubscriptionID: id, URL: "https://" + id.String() + ".example/"}}
}

// open begins requests until there is no seat, at most n.
func (e endpoint) open(n int) (open []*flight) {
	for len(open) < n && e.l.seat(e.work.SubscriptionID, e.work.URL) {
		open = append(open, e.l.begin(e.work))
	}
	return open
}

func (e endpoint) end(open []*flight, answer delivery.Answer) {
	for _, f := range open {
		e.l.end(f, answer)
	}
}

// look is what a look along the queue finds of it.
func (e endpoint) look(first, retry bool) {
	e.l.found([]store.Lane{{SubscriptionID: e.work.SubscriptionID, URL: e.work.URL, First: first, Retry: retry}})
}

// caught says that a claim has found nothing more of it.
func (e endpoint) caught() {
	e.look(true, false)
	turn, rooms := e.l.ask()
	e.l.got(turn, rooms, nil)
}

func wantEqual[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func wantAtLeast(t *testing.T, what string, got, least int) {
	t.Helper()
	if got < least {
		t.Errorf("%s = %d, want at least %d", what, got, least)
	}
}

// wantRooms checks the total of each room that a claim asks for.
func wantRooms(t *testing.T, rooms []store.Room, want ...int) {
	t.Helper()
	var got []int
	for _, room := range rooms {
		got = append(got, room.Total)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("totals of the rooms of a claim (-want +got):\n%s", diff)
	}
}

// check compares the counters of the lanes with what the lanes contain.
func check(t *testing.T, l *lanes) {
	t.Helper()
	var flying, unknown, hosts, resting int
	for _, one := range l.open {
		flying += one.flying
		if !one.proven {
			unknown += one.flying
		}
		if one.resting != nil {
			resting++
		}
		wantAtLeast(t, "requests of a lane, for its seats", one.flying, len(one.seats))
		wantAtLeast(t, "retries of a lane", one.retries, 0)
		wantAtLeast(t, "old requests of a lane", one.old, 0)
		wantEqual(t, "a lane rests", one.resting != nil, one.flying == 0)
	}
	for _, to := range l.hosts {
		hosts += to.flying
		wantAtLeast(t, "cap of a host, for its requests", l.perHost, to.flying)
		wantAtLeast(t, "requests or waiting lanes of a host that is remembered", to.flying+to.line.Len(), 1)
	}
	wantEqual(t, "requests of all lanes", flying, l.flying)
	wantEqual(t, "requests of lanes without proven health", unknown, l.unknown)
	wantEqual(t, "requests to all hosts", hosts, flying)
	wantEqual(t, "resting lanes", resting, l.idle.Len())
	wantAtLeast(t, "most requests, for those that are open", l.most, flying)
}

func TestLanes_RememberTroubleForAWhileOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(512, 128)
		bad := newEndpoint(l)
		bad.end(bad.open(1), delivery.Answer{Code: 503})
		if n := len(bad.open(100)); n != startWindow/2 {
			t.Errorf("%d requests after one 503, want half of the first window", n)
		}
		l2 := newLanes(512, 128)
		bad = newEndpoint(l2)
		bad.end(bad.open(8), hung)
		time.Sleep(memory + time.Second)
		if n := len(bad.open(100)); n != startWindow {
			t.Errorf("%d requests %s after the trouble, want a first window", n, memory)
		}
		check(t, l)
		check(t, l2)
	})
}

func TestLanes_AWindowIsEarnedAndLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(512, 128)
		e := newEndpoint(l)
		open := e.open(100)
		for _, want := range []int{8, 16, 32, 64, 64} {
			if len(open) != want {
				t.Fatalf("%d requests open, want %d", len(open), want)
			}
			e.end(open, good)
			e.caught()
			open = e.open(100)
		}
		for want := 32; want >= 1; want /= 2 {
			e.end(open[:1], delivery.Answer{Code: 429})
			e.end(open[1:], delivery.Answer{Code: 404}) // an answer all the same: one more each
			one := l.open[e.work.SubscriptionID]
			one.window = want
			e.caught()
			if open = e.open(100); len(open) != want {
				t.Errorf("%d requests open, want %d", len(open), want)
			}
		}
		check(t, l)
	})
}

// Latency that is learned from finished requests comes one timeout too late.
func TestLanes_AStalledOneGetsNoMoreUntilSomethingIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(512, 128)
		e := newEndpoint(l)
		open := e.open(2)
		time.Sleep(slow)
		open = append(open, e.open(1)...)
		if len(open) != 3 {
			t.Fatalf("%d open after exactly %s, want 3", len(open), slow)
		}
		time.Sleep(time.Millisecond)
		if len(e.open(1)) != 0 {
			t.Error("a seat though the oldest request is older than a second")
		}
		e.caught()
		e.end(open[:1], hung)
		if len(e.open(1)) != 0 {
			t.Error("a seat after a timeout while another request hangs")
		}
		e.end(open[2:], good)
		e.caught()
		if len(e.open(1)) != 1 {
			t.Error("no seat after a quick answer: one slow request must not stop the others")
		}
		check(t, l)
	})
}

// What hangs at the same instant takes less and less of what is left, never all: not even when it was in the best of health before,
// whether its work comes one by one or all at once.
func TestLanes_ManyThatHangAtOnceLeaveRoom(t *testing.T) {
	for _, proven := range []bool{false, true} {
		for _, at := range []int{1, 64} {
			for _, n := range []int{1, 10, 40, 100, 190, 280} {
				if proven && n > 190 { // as the README says
					continue
				}
				t.Run(fmt.Sprintf("%d hang, %d at a time, proven before: %v", n, at, proven), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { manyHang(t, n, at, proven) })
				})
			}
		}
	}
}

func manyHang(t *testing.T, n, at int, proven bool) {
	l := newLanes(512, 128)
	healthy, unknown := newEndpoint(l), newEndpoint(l)
	healthy.end(healthy.open(8), good)
	bad := make([]endpoint, n)
	for i := range bad {
		bad[i] = newEndpoint(l)
		for proven && l.lane(bad[i].work.SubscriptionID).window < maxWindow {
			bad[i].end(bad[i].open(8), good)
			bad[i].caught()
		}
	}
	for range 64 {
		for _, e := range bad {
			e.open(at)
		}
	}
	taken := l.flying
	healthy.caught()
	for range 20 { // its answers widen what it may have
		open := healthy.open(100)
		if len(open) == 0 {
			t.Fatalf("no room for the healthy one: %d of %d taken", l.flying, l.most)
		}
		healthy.end(open, good)
		healthy.caught()
	}
	if !proven && len(unknown.open(1)) == 0 {
		t.Errorf("no room for an unknown one: %d of %d taken", l.flying, l.most)
	}
	t.Logf("%d of %d taken by what hangs", taken, l.most)
	check(t, l)
}

func TestLanes_TheReserveIsForTheProven(t *testing.T) {
	l := newLanes(16, 128)
	healthy := newEndpoint(l)
	healthy.end(healthy.open(1), good)
	for range 100 {
		newEndpoint(l).open(8)
	}
	if l.flying != 12 {
		t.Errorf("%d of 16 taken by the unknown, want three quarters", l.flying)
	}
	if len(healthy.open(1)) != 1 {
		t.Error("no room for the proven one")
	}
	check(t, l)
}

func TestLanes_AHostHasACapOverAllSubscriptions(t *testing.T) {
	l := newLanes(512, 10)
	urls := []string{"https://Hooks.example/a", "https://hooks.example:443/b", "https://hooks.example./c?d", "https://hooks.EXAMPLE:0443"}
	open := map[uuid.UUID]*flight{}
	for i := range 50 {
		w := delivery.Work{SubscriptionID: uuid.New(), URL: urls[i%len(urls)]}
		if l.seat(w.SubscriptionID, w.URL) {
			open[w.SubscriptionID] = l.begin(w)
		}
	}
	if len(open) != 10 {
		t.Errorf("%d requests to one host, want its cap of 10", len(open))
	}
	if !l.seat(uuid.New(), "https://hooks.example:8443/") {
		t.Error("another port is another host")
	}
	waiting := newEndpoint(l)
	waiting.work.URL = urls[0]
	waiting.look(true, false)
	if _, rooms := l.ask(); len(rooms) != 0 {
		t.Errorf("a claim may take %+v of a host at its cap", rooms)
	}
	for _, f := range open {
		l.end(f, good)
		break
	}
	turn, rooms := l.ask()
	wantRooms(t, rooms, 1)
	// Its url was changed meanwhile, to a host that is full as well; then to one that is not.
	full := newEndpoint(l)
	for range 10 {
		other := newEndpoint(l)
		other.work.URL = full.work.URL
		other.open(1)
	}
	w := waiting.work
	w.URL = full.work.URL
	fly, back := l.got(turn, rooms, []delivery.Work{w})
	wantEqual(t, "deliveries with a seat", len(fly), 0)
	wantEqual(t, "deliveries that go back", len(back), 1)
	check(t, l)
	waiting.work.URL = full.work.URL
	waiting.look(true, false)
	if _, rooms = l.ask(); len(rooms) != 0 {
		t.Errorf("asks for %+v of a full host", rooms)
	}
	check(t, l)
}

func TestLanes_RetriesGetHalfOfAWindow(t *testing.T) {
	l := newLanes(512, 128)
	e := newEndpoint(l)
	e.look(false, true)
	turn, rooms := l.ask()
	wantRooms(t, rooms, 8)
	wantEqual(t, "room for retries", rooms[0].Retries, 4)
	retry := e.work
	retry.Retry = true
	fly, _ := l.got(turn, rooms, []delivery.Work{retry, retry, retry, retry})
	var open []*flight
	for _, w := range fly {
		open = append(open, l.begin(w))
	}
	e.look(false, true)
	if _, rooms := l.ask(); len(rooms) != 0 {
		t.Errorf("room = %+v while retries have their half", rooms)
	}
	if len(e.open(4)) != 4 {
		t.Error("retries that wait keep fresh events from their room")
	}
	e.end(open[:1], good)
	_, rooms = l.ask()
	if len(rooms) != 1 {
		t.Fatalf("rooms after one retry ended = %+v, want one", rooms)
	}
	wantEqual(t, "room for retries after one ended", rooms[0].Retries, 1)
	check(t, l)
}

func TestLanes_OlderWorkGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(512, 128)
		e := newEndpoint(l)
		open := e.open(9) // the ninth is refused
		e.end(open[:4], good)
		if len(e.open(1)) != 0 {
			t.Error("a fresh event overtakes one that was refused")
		}
		e.look(true, false)
		turn, rooms := l.ask()
		wantRooms(t, rooms, 8) // the window has grown by four
		if len(e.open(1)) != 0 {
			t.Error("a seat in the middle of a claim that may leave work")
		}
		l.got(turn, rooms, []delivery.Work{e.work})
		if len(e.open(1)) != 0 {
			t.Error("a seat though one was refused since the claim began: its row may have come too late for it")
		}
		e.caught()
		if len(e.open(1)) != 1 {
			t.Error("no seat though a claim has found no more")
		}
		check(t, l)
	})
}

func TestLanes_AClaimThatTookAllItsRoomIsFollowedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(512, 128)
		e := newEndpoint(l)
		e.look(true, false)
		turn, rooms := l.ask()
		fly, _ := l.got(turn, rooms, []delivery.Work{e.work, e.work, e.work, e.work, e.work, e.work, e.work, e.work})
		var open []*flight
		for _, w := range fly {
			open = append(open, l.begin(w))
		}
		l.end(open[0], good)
		select {
		case <-l.ready:
			t.Error("a claim for every place that becomes free")
		default:
		}
		time.Sleep(2 * gatherFor)
		select {
		case <-l.ready:
		default:
			t.Error("no claim for a place that became free a while ago")
		}
		l.end(open[1], good)
		l.end(open[2], good)
		l.end(open[3], good)
		select {
		case <-l.ready:
		default:
			t.Error("no claim though a quarter of the window is free")
		}
		_, rooms = l.ask()
		wantRooms(t, rooms, 8)
		time.Sleep(2 * gatherFor)
	})
}

func TestLanes_AfterAResumptionSlowlyAtFirst(t *testing.T) {
	l := newLanes(512, 128)
	e := newEndpoint(l)
	e.end(e.open(8), good) // its window is 16
	found := store.Lane{SubscriptionID: e.work.SubscriptionID, URL: e.work.URL, First: true, ResumedAt: time.Unix(1780574400, 0)}
	l.found([]store.Lane{found})
	turn, rooms := l.ask()
	wantRooms(t, rooms, resumeWindow)
	fly, _ := l.got(turn, rooms, []delivery.Work{e.work, e.work})
	for _, w := range fly {
		l.end(l.begin(w), good)
	}
	l.found([]store.Lane{found}) // the same resumption
	_, rooms = l.ask()
	wantRooms(t, rooms, 4)
	check(t, l)
}

func TestLanes_RefusedSeatsLeaveNothingForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(1, 1)
		newEndpoint(l).open(1)
		for range maxLanes + 1000 {
			newEndpoint(l).open(1)
		}
		if n := len(l.open); n > maxLanes+2 {
			t.Errorf("%d lanes remembered, want %d at most", n, maxLanes)
		}
		time.Sleep(memory + time.Second)
		newEndpoint(l).open(1)
		if n := len(l.open); n > 2 {
			t.Errorf("%d lanes remembered after %s, want 2", n, memory)
		}
		check(t, l)
	})
}

func TestLanes_AFailedClaimGivesItsRoomBack(t *testing.T) {
	l := newLanes(512, 128)
	for range 10 {
		newEndpoint(l).look(true, true)
	}
	_, rooms := l.ask()
	if len(rooms) != 10 {
		t.Fatalf("%d lanes asked for, want 10", len(rooms))
	}
	check(t, l)
	l.refund(rooms)
	check(t, l)
	wantEqual(t, "requests after a refund", l.flying, 0)
	wantEqual(t, "hosts after a refund", len(l.hosts), 0)
}

func TestLanes_NeitherKindKeepsTheOtherWaiting(t *testing.T) {
	l := newLanes(512, 128)
	for i := range 400 {
		e := newEndpoint(l)
		if i%2 == 0 {
			e.end(e.open(1), good)
		}
		e.look(true, false)
	}
	kinds := map[bool]int{}
	for range 2 {
		_, rooms := l.ask()
		for _, room := range rooms {
			kinds[l.open[room.SubscriptionID].proven]++
		}
	}
	wantAtLeast(t, "rooms for proven lanes in two claims", kinds[true], 1)
	wantAtLeast(t, "rooms for unproven lanes in two claims", kinds[false], 1)
	check(t, l)
}
