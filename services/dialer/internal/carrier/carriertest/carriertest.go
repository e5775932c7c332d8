// Package carriertest is the conformance suite of package carrier. The test of a carrier calls Run
// with a Network. The tests of package simcarrier check the suite itself: for each rule, a carrier
// that breaks the rule must fail.
package carriertest

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/carrier"
)

// T has the methods of testing.T that a rule needs.
type T interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Network contains a new carrier and its far end. Each string field is a phone number. The name of
// the field describes how the phone with this number behaves.
type Network struct {
	// Carrier.Events returns the events that the carrier published. If the carrier has no event
	// stream, it returns the events that were applied to calls.
	Carrier carrier.EventStream
	// StoresEvents is true if the carrier stores its events. The rules about event streams apply only
	// to such a carrier.
	StoresEvents bool
	// TalkingPhone answers, talks and hangs up. RingingPhone does not answer. SlowPhone does not
	// ring. StayingPhone answers and does not hang up.
	TalkingPhone, BusyPhone, RingingPhone, SlowPhone, StayingPhone string
	// The far end refuses a call to RefusedNumber before the phone rings.
	RefusedNumber string
	// SilentPhone rings, but Originate receives no response.
	SilentPhone string
	// UndialedPhone does not ring, and Originate receives no response. UndialedPhone is empty if the
	// carrier stores a call before the dial.
	UndialedPhone string
	// NewCarrier returns another carrier with the same far end, as in a second dialer process.
	NewCarrier func() carrier.EventStream
	// Dials returns how often a phone of the far end rang or was busy for a call, as recorded by the
	// far end.
	Dials func(callID uuid.UUID) int
	// Call places an inbound call.
	Call func(from, to string) uuid.UUID
	// Stop stops the carrier. Start starts it again, without its stored data if forgetful is true.
	Stop  func()
	Start func(forgetful bool)
}

// Rule is one requirement of package carrier.
type Rule struct {
	Name  string
	Check func(t T, n *Network)
}

// Run tests a carrier against all rules. Each rule gets a new network.
func Run(t *testing.T, fresh func(t testing.TB) *Network) {
	t.Helper()
	for _, rule := range Rules() {
		t.Run(rule.Name, func(t *testing.T) {
			t.Parallel()
			rule.Check(t, fresh(t))
		})
	}
}

// Rules returns all rules.
func Rules() []Rule {
	return append(append([]Rule{
		{Name: "the events of a call are complete", Check: wholeCall},
		{Name: "a busy number ends without an answer", Check: busyCall},
		{Name: "a second originate of a call dials nothing", Check: askedTwice},
		{Name: "concurrent originates of a call dial once", Check: askedAtOnce},
		{Name: "a refusal is definite", Check: refusal},
		{Name: "an unreachable carrier returns errors, but not ErrUnknownCall", Check: away},
		{Name: "an originate without a response is not a refusal", Check: silent},
		{Name: "a canceled originate is not a refusal", Check: givenUp},
		{Name: "after an originate that did not arrive, the call is unknown", Check: neverArrived},
		{Name: "nothing is sent without a permit", Check: notPermitted},
	}, hangupRules()...), eventRules()...)
}

const (
	testTimeout = time.Minute
	// longPoll is longer than any test.
	longPoll         = time.Hour
	originateTimeout = time.Second
	// maxClockSkew is the permitted difference between the clocks of the carrier and the test.
	maxClockSkew = 5 * time.Second
)

const from = "+15005550006"

func order(to string) carrier.Originate {
	return carrier.Originate{CallID: uuid.Must(uuid.NewV7()), From: from, To: to}
}

type dialed struct {
	carrier.Originate
	at time.Time
}

func originate(ctx context.Context, over carrier.Carrier, o carrier.Originate) (dialed, error) {
	at, err := over.Originate(ctx, o)
	return dialed{Originate: o, at: at}, err
}

func dial(t T, n *Network, to string) dialed {
	t.Helper()
	d, err := originate(t.Context(), n.Carrier, order(to))
	if err != nil {
		t.Fatalf("originate: %v", err)
	}
	if d.at.IsZero() {
		t.Errorf("time of the dial = 0, want the time at which the request left")
	}
	return d
}

// eventReader stores all events of a stream and checks the rules about the stream.
type eventReader struct {
	t      T
	trunk  carrier.EventStream
	stream string
	place  int64
	all    []carrier.Event
}

func read(t T, trunk carrier.EventStream) *eventReader { return &eventReader{t: t, trunk: trunk} }

// readBatch waits for events, at most for maxWait, and returns their number.
func (r *eventReader) readBatch(maxWait time.Duration) int {
	r.t.Helper()
	batch, err := r.trunk.Events(r.t.Context(), r.place, maxWait)
	if err != nil {
		r.t.Fatalf("Events after %d: %v", r.place, err)
	}
	if batch.Stream == "" || r.stream != "" && batch.Stream != r.stream {
		r.t.Fatalf("name of the stream = %q, was %q", batch.Stream, r.stream)
	}
	r.stream = batch.Stream
	for _, events := range batch.Events {
		if events.Seq <= r.place {
			r.t.Fatalf("event %d after position %d", events.Seq, r.place)
		}
		r.place = events.Seq
	}
	r.all = append(r.all, batch.Events...)
	return len(batch.Events)
}

func (r *eventReader) eventsOf(callID uuid.UUID) (events []carrier.Event) {
	for _, one := range r.all {
		if one.CallID == callID {
			events = append(events, one)
		}
	}
	return events
}

func (r *eventReader) waitFor(callID uuid.UUID, kind carrier.Kind) []carrier.Event {
	r.t.Helper()
	for begun := time.Now(); ; r.readBatch(time.Second) {
		if events := r.eventsOf(callID); count(events, kind) > 0 {
			return events
		}
		if time.Since(begun) > testTimeout {
			r.t.Fatalf("no event of kind %s of call %s: %v", kind, callID, kinds(r.eventsOf(callID)))
		}
	}
}

func (r *eventReader) readAll() {
	r.t.Helper()
	for r.readBatch(0) > 0 {
	}
}

func count(events []carrier.Event, kind carrier.Kind) (times int) {
	for _, one := range events {
		if one.Kind == kind {
			times++
		}
	}
	return times
}

func kinds(events []carrier.Event) (all []carrier.Kind) {
	for _, one := range events {
		if one.Kind != carrier.Utterance {
			all = append(all, one.Kind)
		}
	}
	return all
}
