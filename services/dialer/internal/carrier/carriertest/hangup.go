package carriertest

import (
	"errors"
	"slices"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
)

func hangupRules() []Rule {
	return []Rule{
		{Name: "a call that was not dialed is unknown", Check: unknown},
		{
			Name:  "a call is hung up before it rings",
			Check: func(t T, n *Network) { hangUpTwice(t, n, n.SlowPhone, carrier.Accepted) },
		},
		{
			Name:  "a call is hung up while it rings",
			Check: func(t T, n *Network) { hangUpTwice(t, n, n.RingingPhone, carrier.Ringing) },
		},
		{
			Name:  "a call is hung up after the answer",
			Check: func(t T, n *Network) { hangUpTwice(t, n, n.StayingPhone, carrier.Answered) },
		},
		{Name: "hanging up an ended call does not change it", Check: endedBefore},
		{Name: "another process can end a call of this one", Check: elsewhere},
		{Name: "an inbound call rings, is answered and ends", Check: inbound},
		{Name: "an inbound call is hung up unanswered", Check: inboundUnanswered},
		{Name: "an inbound call is refused as busy", Check: inboundRefused},
	}
}

func unknown(t T, n *Network) {
	id := uuid.Must(uuid.NewV7())
	_, found := n.Carrier.Find(t.Context(), id)
	_, hungUp := n.Carrier.Hangup(t.Context(), id)
	for deed, err := range map[string]error{"find": found, "hang up": hungUp, "answer": n.Carrier.Answer(t.Context(), id)} {
		if !errors.Is(err, carrier.ErrUnknownCall) {
			t.Errorf("%s: %v, want ErrUnknownCall", deed, err)
		}
	}
}

// hangUpTwice hangs up a call and calls Hangup again, which must also succeed.
func hangUpTwice(t T, n *Network, to string, state carrier.Kind) {
	o := dial(t, n, to)
	r := read(t, n.Carrier)
	r.waitFor(o.CallID, state)
	first, err := n.Carrier.Hangup(t.Context(), o.CallID)
	if err != nil || first.EndedAt == nil || !first.ByUs || first.Cause == "" {
		t.Fatalf("Hangup = %+v, %v", first, err)
	}
	again, err := n.Carrier.Hangup(t.Context(), o.CallID)
	if err != nil || again.EndedAt == nil || !again.EndedAt.Equal(*first.EndedAt) || !again.ByUs || again.Cause != first.Cause {
		t.Errorf("second Hangup = %+v, %v; first = %+v", again, err, first)
	}
	r.waitFor(o.CallID, carrier.Ended)
	r.readAll()
	events := r.eventsOf(o.CallID)
	if got := count(events,
		carrier.Ended); got != 1 || !events[len(events)-1].ByUs || events[len(events)-1].Kind != carrier.Ended {
		t.Errorf("events = %v, ends = %d, last = %+v", kinds(events), got, events[len(events)-1])
	}
	checkEvents(t, o, events)
	checkFind(t, n, o.CallID, events)
	checkDials(t, n, o.CallID, 1)
}

func endedBefore(t T, n *Network) {
	o := dial(t, n, n.TalkingPhone)
	r := read(t, n.Carrier)
	before := r.waitFor(o.CallID, carrier.Ended)
	known, err := n.Carrier.Hangup(t.Context(), o.CallID)
	if err != nil || known.ByUs || known.EndedAt == nil || known.AnsweredAt == nil {
		t.Errorf("Hangup = %+v, %v", known, err)
	}
	r.waitFor(dial(t, n, n.BusyPhone).CallID, carrier.Ended)
	if after := r.eventsOf(o.CallID); len(after) != len(before) {
		t.Errorf("events after the end = %v, want none", kinds(after))
	}
	checkFind(t, n, o.CallID, before)
}

func elsewhere(t T, n *Network) {
	o := dial(t, n, n.StayingPhone)
	other := n.NewCarrier()
	r := read(t, other)
	r.waitFor(o.CallID, carrier.Answered)
	if other.Name() != n.Carrier.Name() {
		t.Errorf("Name = %s in one process and %s in another", n.Carrier.Name(), other.Name())
	}
	if known, err := other.Hangup(t.Context(), o.CallID); err != nil || !known.ByUs {
		t.Errorf("Hangup = %+v, %v", known, err)
	}
	checkEvents(t, o, read(t, n.Carrier).waitFor(o.CallID, carrier.Ended))
}

func inbound(t T, n *Network) {
	const caller, ours = "+14155550001", "+14155559000"
	id := n.Call(caller, ours)
	r := read(t, n.Carrier)
	r.waitFor(id, carrier.Ringing)
	for range 2 {
		if err := n.Carrier.Answer(t.Context(), id); err != nil {
			t.Fatalf("answer: %v", err)
		}
	}
	r.waitFor(id, carrier.Ended)
	if err := n.Carrier.Answer(t.Context(), id); err != nil {
		t.Errorf("answer after the end: %v", err)
	}
	r.readAll()
	events := r.eventsOf(id)
	if got := kinds(events); !slices.Equal(got, []carrier.Kind{carrier.Ringing, carrier.Answered, carrier.Ended}) {
		t.Errorf("events = %v", got)
	}
	for _, one := range events {
		if !one.Inbound || one.From != caller || one.To != ours || one.DialedAt != nil {
			t.Errorf("%s = %+v", one.Kind, one)
		}
	}
	checkFind(t, n, id, events)
}

func inboundUnanswered(t T, n *Network) {
	id := n.Call("", "+14155559000")
	r := read(t, n.Carrier)
	if events := r.waitFor(id, carrier.Ringing); events[0].From != "" {
		t.Errorf("From of a withheld number = %q, want it empty", events[0].From)
	}
	if known, err := n.Carrier.Hangup(t.Context(), id); err != nil || !known.ByUs || known.AnsweredAt != nil {
		t.Errorf("Hangup = %+v, %v", known, err)
	}
	if events := r.waitFor(id, carrier.Ended); count(events, carrier.Answered) != 0 {
		t.Errorf("events = %v", kinds(events))
	}
}

func inboundRefused(t T, n *Network) {
	id := n.Call("+14155550001", "+14155559000")
	r := read(t, n.Carrier)
	r.waitFor(id, carrier.Ringing)
	first, err := n.Carrier.Refuse(t.Context(), id)
	if err != nil || !first.ByUs || first.AnsweredAt != nil || first.Cause != callstate.UserBusy {
		t.Errorf("Refuse = %+v, %v", first, err)
	}
	events := r.waitFor(id, carrier.Ended)
	if last := events[len(events)-1]; last.Cause != callstate.UserBusy || count(events, carrier.Answered) != 0 {
		t.Errorf("events = %v, last = %+v", kinds(events), last)
	}
	if again, err := n.Carrier.Refuse(t.Context(), id); err != nil || again.Cause != callstate.UserBusy {
		t.Errorf("second Refuse = %+v, %v", again, err)
	}
	if _, err := n.Carrier.Refuse(t.Context(), uuid.Must(uuid.NewV7())); !errors.Is(err, carrier.ErrUnknownCall) {
		t.Errorf("Refuse of an unknown call = %v, want ErrUnknownCall", err)
	}
}
