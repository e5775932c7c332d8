package carriertest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/carrier"
)

func eventRules() []Rule {
	return []Rule{
		{Name: "events can be read again from any position", Check: eventsReadAgain},
		{Name: "Events waits only if there are no events", Check: eventsLongPoll},
		{Name: "events of concurrent calls keep the order of each call", Check: eventsOfManyCalls},
		{Name: "a restarted carrier keeps its events and ends lost calls", Check: restarted},
		{Name: "a carrier without its memory starts a new stream", Check: forgetful},
	}
}

func eventsReadAgain(t T, n *Network) {
	if !n.StoresEvents {
		return
	}
	r := read(t, n.Carrier)
	r.waitFor(dial(t, n, n.TalkingPhone).CallID, carrier.Ended)
	r.readAll()
	for i := -1; i < len(r.all); i++ {
		place := int64(0)
		if i >= 0 {
			place = r.all[i].Seq
		}
		other := read(t, n.NewCarrier())
		other.place = place
		other.readAll()
		if other.stream != r.stream || !same(other.all, r.all[i+1:]) {
			t.Fatalf("events after position %d of %s = %v, want %v", place, other.stream, other.all, r.all[i+1:])
		}
	}
	far, err := n.Carrier.Events(t.Context(), r.place+1000, 0)
	if err != nil || far.Stream != r.stream || len(far.Events) != 0 {
		t.Errorf("Events after a position beyond the stream = %v, %v", far, err)
	}
}

func same(a, b []carrier.Event) bool {
	return slices.EqualFunc(a, b, func(a, b carrier.Event) bool {
		if (a.DialedAt == nil) != (b.DialedAt == nil) || a.DialedAt != nil && !a.DialedAt.Equal(*b.DialedAt) || !a.At.Equal(b.At) {
			return false
		}
		a.DialedAt, a.At, b.DialedAt, b.At = nil, time.Time{}, nil, time.Time{}
		return a == b
	})
}

func eventsLongPoll(t T, n *Network) {
	if !n.StoresEvents {
		return
	}
	r := read(t, n.Carrier)
	r.readAll()
	begun := time.Now()
	if got := r.readBatch(300 * time.Millisecond); got != 0 {
		t.Errorf("news of an idle carrier = %d, want 0", got)
	}
	if got := time.Since(begun); got < 250*time.Millisecond {
		t.Errorf("Events returned after %v, want 300ms", got)
	}
	eventCount := make(chan int, 1)
	go func() { // sends the number of events, or 0 after an error
		batch, err := n.Carrier.Events(t.Context(), r.place, longPoll)
		if err != nil {
			eventCount <- 0
			return
		}
		eventCount <- len(batch.Events)
	}()
	dial(t, n, n.RingingPhone)
	select {
	case got := <-eventCount:
		if got == 0 {
			t.Errorf("the long poll returned no event, want at least 1")
		}
	case <-time.After(testTimeout):
		t.Errorf("the long poll did not return when there was an event")
	}
	r.readAll()
	if got := read(t, n.Carrier).readBatch(longPoll); got == 0 {
		t.Errorf("a long poll from the start of the stream returned no event, want at least 1")
	}
	quiet := read(t, n.Carrier)
	quiet.waitFor(dial(t, n, n.BusyPhone).CallID, carrier.Ended)
	quiet.readAll()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := n.Carrier.Events(ctx, quiet.place+1000, longPoll); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("long poll after its context ended = %v, want context.DeadlineExceeded", err)
	}
}

func eventsOfManyCalls(t T, n *Network) {
	const calls = 40
	var all []dialed
	for i := range calls {
		all = append(all, dial(t, n, []string{n.TalkingPhone, n.BusyPhone}[i%2]))
	}
	r := read(t, n.Carrier)
	for _, o := range all {
		r.waitFor(o.CallID, carrier.Ended)
	}
	r.readAll()
	for _, o := range all {
		events := r.eventsOf(o.CallID)
		checkEvents(t, o, events)
		got := slices.DeleteFunc(kinds(events), func(k carrier.Kind) bool { return k == carrier.Ringing })
		want := []carrier.Kind{carrier.Accepted, carrier.Answered, carrier.Ended}
		if o.To == n.BusyPhone {
			want = []carrier.Kind{carrier.Accepted, carrier.Ended}
		}
		if !slices.Equal(got, want) {
			t.Errorf("events of a call to %s = %v", o.To, kinds(events))
		}
	}
}

func restarted(t T, n *Network) {
	r := read(t, n.Carrier)
	done, alive := dial(t, n, n.TalkingPhone), dial(t, n, n.StayingPhone)
	ended := r.waitFor(done.CallID, carrier.Ended)
	r.waitFor(alive.CallID, carrier.Answered)
	r.readAll()
	n.Stop()
	n.Start(false)
	again := read(t, n.Carrier)
	again.readAll()
	if again.stream != r.stream || len(again.all) < len(r.all) || !same(again.all[:len(r.all)], r.all) {
		t.Fatalf("stream after the restart = %s with %d events, was %s with %d", again.stream, len(again.all),
			r.stream, len(r.all))
	}
	checkFind(t, n, done.CallID, ended)
	// The restart can have ended the live call, or not. In either case, the end of the call must be
	// published.
	if _, err := n.Carrier.Hangup(t.Context(), alive.CallID); err != nil {
		t.Errorf("hang up: %v", err)
	}
	events := again.waitFor(alive.CallID, carrier.Ended)
	checkEvents(t, alive, events)
	checkFind(t, n, alive.CallID, events)
	checkDials(t, n, alive.CallID, 1)
	checkDials(t, n, done.CallID, 1)
	again.waitFor(dial(t, n, n.BusyPhone).CallID, carrier.Ended)
}

func forgetful(t T, n *Network) {
	if !n.StoresEvents {
		return
	}
	r := read(t, n.Carrier)
	lost := dial(t, n, n.StayingPhone)
	r.waitFor(lost.CallID, carrier.Answered)
	n.Stop()
	n.Start(true)
	batch, err := n.Carrier.Events(t.Context(), r.place, 0)
	if err != nil || batch.Stream == r.stream || batch.Stream == "" {
		t.Errorf("name of the stream = %q, want another one than %q; error = %v", batch.Stream, r.stream, err)
	}
	_, found := n.Carrier.Find(t.Context(), lost.CallID)
	_, hungUp := n.Carrier.Hangup(t.Context(), lost.CallID)
	if !errors.Is(found, carrier.ErrUnknownCall) || !errors.Is(hungUp, carrier.ErrUnknownCall) {
		t.Errorf("Find = %v, Hangup = %v, want ErrUnknownCall", found, hungUp)
	}
	anew := read(t, n.Carrier)
	o := dial(t, n, n.BusyPhone)
	anew.waitFor(o.CallID, carrier.Ended)
	noCall := func(one carrier.Event) bool { return one.CallID == uuid.Nil }
	if events := anew.eventsOf(lost.CallID); len(events) != 0 || slices.ContainsFunc(anew.all, noCall) {
		t.Errorf("events of the forgotten calls = %v, want none", anew.all)
	}
}
