package carriertest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
)

func wholeCall(t T, n *Network) {
	o := dial(t, n, n.TalkingPhone)
	r := read(t, n.Carrier)
	r.waitFor(o.CallID, carrier.Ended)
	r.readAll()
	events := r.eventsOf(o.CallID)
	if got := kinds(events); !slices.Equal(got,
		[]carrier.Kind{carrier.Accepted, carrier.Ringing, carrier.Answered, carrier.Ended}) {
		t.Fatalf("events = %v", got)
	}
	checkEvents(t, o, events)
	if count(events, carrier.Utterance) == 0 {
		t.Errorf("utterances = 0, want at least 1")
	}
	end := events[len(events)-1]
	if end.Cause != callstate.NormalClearing || end.ByUs {
		t.Errorf("cause = %q, by us = %v", end.Cause, end.ByUs)
	}
	checkFind(t, n, o.CallID, events)
	checkDials(t, n, o.CallID, 1)
}

func busyCall(t T, n *Network) {
	o := dial(t, n, n.BusyPhone)
	events := read(t, n.Carrier).waitFor(o.CallID, carrier.Ended)
	if end := events[len(events)-1]; count(events,
		carrier.Answered) != 0 || end.Cause != callstate.UserBusy || end.ByUs {
		t.Errorf("events = %v, end = %+v", kinds(events), end)
	}
	checkEvents(t, o, events)
	checkFind(t, n, o.CallID, events)
}

func checkEvents(t T, o dialed, events []carrier.Event) {
	t.Helper()
	last := o.at.Add(-maxClockSkew)
	for _, one := range events {
		if one.At.Before(last) || one.At.After(time.Now().Add(maxClockSkew)) {
			t.Errorf("time of %s = %s, dialed at %s, event before at %s", one.Kind, one.At, o.at, last)
		}
		last = one.At
		if one.From != o.From || one.To != o.To || one.Inbound {
			t.Errorf("event %s: from = %s, to = %s, inbound = %v", one.Kind, one.From, one.To, one.Inbound)
		}
		if one.DialedAt == nil || !one.DialedAt.Equal(o.at) {
			t.Errorf("event %s: DialedAt = %v, want %s", one.Kind, one.DialedAt, o.at)
		}
		if (one.Kind == carrier.Ended) != (one.Cause != "") {
			t.Errorf("event %s: cause = %q", one.Kind, one.Cause)
		}
		if (one.Kind == carrier.Utterance) != (one.Text != "") {
			t.Errorf("event %s: text = %q", one.Kind, one.Text)
		}
	}
}

// checkFind checks that Find returns the time of each event, and the cause of the event Ended.
func checkFind(t T, n *Network, callID uuid.UUID, events []carrier.Event) {
	t.Helper()
	known, err := n.Carrier.Find(t.Context(), callID)
	if err != nil {
		t.Fatalf("find: %v", err)
	}
	for _, one := range events {
		var at *time.Time
		switch one.Kind {
		case carrier.Ringing:
			at = known.RingingAt
		case carrier.Answered:
			at = known.AnsweredAt
		case carrier.Ended:
			at = known.EndedAt
			if known.Cause != one.Cause || known.ByUs != one.ByUs {
				t.Errorf("Find: cause = %q, by us = %v; event: %q, %v", known.Cause, known.ByUs, one.Cause, one.ByUs)
			}
		default:
			continue
		}
		if at == nil || !at.Equal(one.At) {
			t.Errorf("Find: time of %s = %v, event: %s", one.Kind, at, one.At)
		}
	}
	if count(events, carrier.Answered) == 0 && known.AnsweredAt != nil {
		t.Errorf("Find: AnsweredAt = %s, and there is no answer event", known.AnsweredAt)
	}
}

func checkDials(t T, n *Network, callID uuid.UUID, times int) {
	t.Helper()
	if got := n.Dials(callID); got != times {
		t.Errorf("dials at the far end = %d, want %d", got, times)
	}
}

func askedTwice(t T, n *Network) {
	for _, to := range []string{n.RingingPhone, n.BusyPhone} {
		o := dial(t, n, to)
		if to == n.BusyPhone {
			read(t, n.Carrier).waitFor(o.CallID, carrier.Ended)
		}
		if _, err := n.Carrier.Originate(t.Context(), o.Originate); !errors.Is(err, carrier.ErrAlreadyOriginated) {
			t.Errorf("second Originate = %v, want ErrAlreadyOriginated", err)
		}
		checkDials(t, n, o.CallID, 1)
	}
	o := order(n.RefusedNumber)
	_, _ = n.Carrier.Originate(t.Context(), o)
	if _, err := n.Carrier.Originate(t.Context(), o); !errors.Is(err, carrier.ErrAlreadyOriginated) {
		t.Errorf("Originate after a refusal = %v, want ErrAlreadyOriginated", err)
	}
}

func askedAtOnce(t T, n *Network) {
	const askers = 16
	for range 4 {
		o := order(n.RingingPhone)
		errs := make([]error, askers)
		var all sync.WaitGroup
		for i := range askers {
			all.Go(func() { _, errs[i] = n.Carrier.Originate(t.Context(), o) })
		}
		all.Wait()
		taken := 0
		for _, err := range errs {
			switch {
			case err == nil:
				taken++
			case !errors.Is(err, carrier.ErrAlreadyOriginated):
				t.Errorf("concurrent Originate = %v, want ErrAlreadyOriginated", err)
			}
		}
		if taken != 1 {
			t.Errorf("%d of %d calls of Originate returned nil, want 1", taken, askers)
		}
		checkDials(t, n, o.CallID, 1)
	}
}

func refusal(t T, n *Network) {
	o := order(n.RefusedNumber)
	var refused *carrier.Refused
	if _, err := n.Carrier.Originate(t.Context(), o); !errors.As(err, &refused) {
		t.Fatalf("Originate = %v, want a *Refused", err)
	}
	if refused.Cause == "" || refused.NotSent {
		t.Errorf("refusal: cause = %q, NotSent = %v", refused.Cause, refused.NotSent)
	}
	if _, err := n.Carrier.Find(t.Context(), o.CallID); !errors.Is(err, carrier.ErrUnknownCall) {
		t.Errorf("Find = %v, want ErrUnknownCall", err)
	}
	r := read(t, n.Carrier)
	// When a later call has ended, all events of the refused call must have arrived.
	r.waitFor(dial(t, n, n.BusyPhone).CallID, carrier.Ended)
	if events := r.eventsOf(o.CallID); len(events) != 0 {
		t.Errorf("events of a refused call = %v, want none", kinds(events))
	}
	checkDials(t, n, o.CallID, 0)
}

func away(t T, n *Network) {
	if err := n.Carrier.Ready(t.Context()); err != nil {
		t.Fatalf("ready: %v", err)
	}
	taken := dial(t, n, n.RingingPhone)
	n.Stop()
	if err := n.Carrier.Ready(t.Context()); err == nil {
		t.Errorf("Ready of an unreachable carrier = nil, want an error")
	}
	o := order(n.TalkingPhone)
	var refused *carrier.Refused
	if _, err := n.Carrier.Originate(t.Context(), o); !errors.As(err, &refused) || !refused.NotSent || refused.Cause == "" {
		t.Errorf("Originate = %v, want a *Refused with NotSent and a cause", err)
	}
	_, found := n.Carrier.Find(t.Context(), taken.CallID)
	_, hungUp := n.Carrier.Hangup(t.Context(), taken.CallID)
	answered := n.Carrier.Answer(t.Context(), taken.CallID)
	for deed, err := range map[string]error{"find": found, "hang up": hungUp, "answer": answered} {
		if err == nil || errors.Is(err, carrier.ErrUnknownCall) {
			t.Errorf("%s of an unreachable carrier = %v, want an error that is not ErrUnknownCall", deed, err)
		}
	}
	if batch, err := n.Carrier.Events(t.Context(), 0, time.Second); err == nil {
		t.Errorf("Events of an unreachable carrier = %v, want an error", batch)
	}
	n.Start(false)
	checkDials(t, n, o.CallID, 0)
	checkDials(t, n, taken.CallID, 1)
}

func silent(t T, n *Network) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	d, err := originate(ctx, n.Carrier, order(n.SilentPhone))
	wantUnknownOutcome(t, err)
	if err := ctx.Err(); err != nil {
		t.Errorf("the originate ended with its context (%v), want the carrier's own timeout", err)
	}
	checkRinging(t, n, d)
}

func givenUp(t T, n *Network) {
	o := order(n.SilentPhone)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	var d dialed
	go func() {
		var err error
		d, err = originate(ctx, n.Carrier, o)
		result <- err
	}()
	// This loop polls until a phone of the far end rings.
	for begun := time.Now(); n.Dials(o.CallID) == 0 && len(result) == 0; <-time.After(5 * time.Millisecond) {
		if time.Since(begun) > testTimeout || t.Context().Err() != nil {
			t.Fatalf("the originate never reached the far end")
		}
	}
	cancel()
	err := <-result
	wantUnknownOutcome(t, err)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("originate with a canceled context = %v, want context.Canceled", err)
	}
	checkRinging(t, n, d)
	_, err = n.Carrier.Originate(t.Context(), o)
	wantUnknownOutcome(t, err)
	checkDials(t, n, o.CallID, 1)
}

func notPermitted(t T, n *Network) {
	o, asked := order(n.RingingPhone), 0
	o.Permit = func(context.Context) bool { asked++; return false }
	at, err := n.Carrier.Originate(t.Context(), o)
	if !errors.Is(err, carrier.ErrNotPermitted) {
		t.Errorf("originate = %v, want ErrNotPermitted", err)
	}
	var refused *carrier.Refused
	if errors.As(err, &refused) {
		t.Errorf("originate = %v, want no refusal: nothing was sent", err)
	}
	if !at.IsZero() {
		t.Errorf("time of the dial = %v, want 0", at)
	}
	if asked != 1 {
		t.Errorf("calls of Permit = %d, want 1", asked)
	}
	checkDials(t, n, o.CallID, 0)
	if _, err := n.Carrier.Find(t.Context(), o.CallID); !errors.Is(err, carrier.ErrUnknownCall) {
		t.Errorf("find = %v, want ErrUnknownCall", err)
	}
}

func wantUnknownOutcome(t T, err error) {
	t.Helper()
	var refused *carrier.Refused
	if err == nil || errors.As(err, &refused) || errors.Is(err, carrier.ErrUnknownCall) {
		t.Errorf("Originate = %v, want an error that is not a *Refused", err)
	}
}

// checkRinging checks that exactly one phone rang for the call, and that Hangup ends the call.
func checkRinging(t T, n *Network, o dialed) {
	t.Helper()
	r := read(t, n.Carrier)
	r.waitFor(o.CallID, carrier.Accepted)
	if _, err := n.Carrier.Find(t.Context(), o.CallID); err != nil {
		t.Errorf("find: %v", err)
	}
	if known, err := n.Carrier.Hangup(t.Context(), o.CallID); err != nil || known.EndedAt == nil {
		t.Errorf("Hangup = %+v, %v", known, err)
	}
	checkEvents(t, o, r.waitFor(o.CallID, carrier.Ended))
	checkDials(t, n, o.CallID, 1)
}

func neverArrived(t T, n *Network) {
	if n.UndialedPhone == "" {
		return
	}
	o := order(n.UndialedPhone)
	ctx, cancel := context.WithTimeout(t.Context(), originateTimeout)
	defer cancel()
	_, err := n.Carrier.Originate(ctx, o)
	wantUnknownOutcome(t, err)
	if _, err := n.Carrier.Find(t.Context(), o.CallID); !errors.Is(err, carrier.ErrUnknownCall) {
		t.Errorf("Find = %v, want ErrUnknownCall", err)
	}
	if _, err := n.Carrier.Hangup(t.Context(), o.CallID); !errors.Is(err, carrier.ErrUnknownCall) {
		t.Errorf("Hangup = %v, want ErrUnknownCall", err)
	}
	checkDials(t, n, o.CallID, 0)
}
