package carriertest

import (
	"errors"
	"slices"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/carrier"
)

func hangupRules() []Rule {
	return []Rule{
		{"a call that nobody dialled is unknown", unknown},
		{"a call is hung up before it rings", func(t T, n *Network) { hungUp(t, n, n.Slow, carrier.Accepted) }},
		{"a call is hung up while it rings", func(t T, n *Network) { hungUp(t, n, n.Rings, carrier.Ringing) }},
		{"a call is hung up after the answer", func(t T, n *Network) { hungUp(t, n, n.Stays, carrier.Answered) }},
		{"a call that ended by itself stays as it ended", endedBefore},
		{"another process ends what this one dialled", elsewhere},
		{"an inbound call rings, is answered and ends", inbound},
		{"an inbound call is hung up unanswered", inboundUnanswered},
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

// hungUp ends a call in a state, twice.
func hungUp(t T, n *Network, to string, state carrier.Kind) {
	o := dial(t, n, to)
	r := read(t, n.Carrier)
	r.until(o.CallID, state)
	first, err := n.Carrier.Hangup(t.Context(), o.CallID)
	if err != nil || first.EndedAt == nil || !first.ByUs || first.Cause == "" {
		t.Fatalf("hang up: %+v, %v", first, err)
	}
	again, err := n.Carrier.Hangup(t.Context(), o.CallID)
	if err != nil || again.EndedAt == nil || !again.EndedAt.Equal(*first.EndedAt) || !again.ByUs || again.Cause != first.Cause {
		t.Errorf("hung up again: %+v, %v; at first %+v", again, err, first)
	}
	r.until(o.CallID, carrier.Ended)
	r.readAll()
	news := r.eventsOf(o.CallID)
	if got := count(news, carrier.Ended); got != 1 || !news[len(news)-1].ByUs || news[len(news)-1].Kind != carrier.Ended {
		t.Errorf("news = %v, ended %d times: %+v", kinds(news), got, news[len(news)-1])
	}
	checkEvents(t, o, news)
	checkFind(t, n, o.CallID, news)
	checkDials(t, n, o.CallID, 1)
}

func endedBefore(t T, n *Network) {
	o := dial(t, n, n.Talks)
	r := read(t, n.Carrier)
	before := r.until(o.CallID, carrier.Ended)
	known, err := n.Carrier.Hangup(t.Context(), o.CallID)
	if err != nil || known.ByUs || known.EndedAt == nil || known.AnsweredAt == nil {
		t.Errorf("hang up: %+v, %v", known, err)
	}
	r.until(dial(t, n, n.Busy).CallID, carrier.Ended)
	if after := r.eventsOf(o.CallID); len(after) != len(before) {
		t.Errorf("after it had ended the news of the call go on: %v", kinds(after))
	}
	checkFind(t, n, o.CallID, before)
}

func elsewhere(t T, n *Network) {
	o := dial(t, n, n.Stays)
	other := n.Another()
	r := read(t, other)
	r.until(o.CallID, carrier.Answered)
	if other.Name() != n.Carrier.Name() {
		t.Errorf("the trunk is called %s here and %s there", n.Carrier.Name(), other.Name())
	}
	if known, err := other.Hangup(t.Context(), o.CallID); err != nil || !known.ByUs {
		t.Errorf("hang up: %+v, %v", known, err)
	}
	checkEvents(t, o, read(t, n.Carrier).until(o.CallID, carrier.Ended))
}

func inbound(t T, n *Network) {
	const caller, ours = "+14155550001", "+14155559000"
	id := n.Call(caller, ours)
	r := read(t, n.Carrier)
	r.until(id, carrier.Ringing)
	for range 2 {
		if err := n.Carrier.Answer(t.Context(), id); err != nil {
			t.Fatalf("answer: %v", err)
		}
	}
	r.until(id, carrier.Ended)
	if err := n.Carrier.Answer(t.Context(), id); err != nil {
		t.Errorf("answer after the end: %v", err)
	}
	r.readAll()
	news := r.eventsOf(id)
	if got := kinds(news); !slices.Equal(got, []carrier.Kind{carrier.Ringing, carrier.Answered, carrier.Ended}) {
		t.Errorf("news = %v", got)
	}
	for _, one := range news {
		if !one.Inbound || one.From != caller || one.To != ours || one.DialedAt != nil {
			t.Errorf("%s = %+v", one.Kind, one)
		}
	}
	checkFind(t, n, id, news)
}

func inboundUnanswered(t T, n *Network) {
	id := n.Call("", "+14155559000")
	r := read(t, n.Carrier)
	if news := r.until(id, carrier.Ringing); news[0].From != "" {
		t.Errorf("a withheld number is told as %q", news[0].From)
	}
	if known, err := n.Carrier.Hangup(t.Context(), id); err != nil || !known.ByUs || known.AnsweredAt != nil {
		t.Errorf("hang up: %+v, %v", known, err)
	}
	if news := r.until(id, carrier.Ended); count(news, carrier.Answered) != 0 {
		t.Errorf("news = %v", kinds(news))
	}
}
