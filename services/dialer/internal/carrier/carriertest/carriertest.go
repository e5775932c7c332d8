// Package carriertest is the conformance suite of package carrier: what every carrier must do, whichever it is. A carrier's own test gives Run a network
// to try it on, whose far end the suite can move; the rules are tested too, by carriers that break each.
package carriertest

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/carrier"
)

// T is what a rule needs of a test.
type T interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Network is a fresh carrier and what is behind it. The numbers do what they say; originates to two of them never meet.
type Network struct {
	// Carrier is the carrier. Its Events are what it published, or, without a feed, what it applied
	// to calls.
	Carrier carrier.EventStream
	// HasFeed: the carrier stores its events itself, so the rules of a feed apply.
	HasFeed bool
	// Talks answers soon, talks, and hangs up. Busy is busy. Rings rings soon, and for as long as the suite lasts. Slow does nothing at all for as
	// long. Stays answers soon and stays on the line.
	Talks, Busy, Rings, Slow, Stays string
	// Refuses is refused before anything rings.
	Refuses string
	// Silent rings, but the far end does not answer the originate until the carrier gives up.
	// SilentUndialed does not ring. It is empty for a carrier that stores a call before it dials.
	Silent, SilentUndialed string
	// Another is the same trunk in another process of ours.
	Another func() carrier.EventStream
	// Dials counts how often the far end rang, or was busy, for a call: from its own records, not from the carrier's news.
	Dials func(callID uuid.UUID) int
	// Call has somebody call us.
	Call func(from, to string) uuid.UUID
	// Stop takes the carrier away, Start brings it back; forgetful: without its memory.
	Stop  func()
	Start func(forgetful bool)
}

// Rule is one promise of package carrier.
type Rule struct {
	Name  string
	Check func(t T, n *Network)
}

// Run holds a carrier to every rule, each on a fresh network.
func Run(t *testing.T, fresh func(t testing.TB) *Network) {
	t.Helper()
	for _, rule := range Rules() {
		t.Run(rule.Name, func(t *testing.T) {
			t.Parallel()
			rule.Check(t, fresh(t))
		})
	}
}

// Rules are all of them.
func Rules() []Rule {
	return append(append([]Rule{
		{"a call is told from its dial to its end", wholeCall},
		{"a busy number ends without an answer", busyCall},
		{"asked twice dials once", askedTwice},
		{"asked by many at once dials once", askedAtOnce},
		{"a refusal is definite", refusal},
		{"a carrier that is away was not asked and knows nothing", away},
		{"an originate that is not answered is nobody's refusal", silent},
		{"an originate that is given up is nobody's refusal", givenUp},
		{"an originate that never arrived leaves an unknown call", neverArrived},
		{"nothing leaves that is not permitted", notPermitted},
	}, hangupRules()...), eventRules()...)
}

const (
	// testTimeout ends a test that hangs.
	testTimeout = time.Minute
	// longPoll is a wait for news that is longer than any test.
	longPoll = time.Hour
	// originateTimeout is when the suite cancels an originate that does not reach the far end.
	originateTimeout = time.Second
	// skew is how far the carrier's clock may be from ours.
	skew = 5 * time.Second
)

const from = "+15005550006"

func order(to string) carrier.Originate {
	return carrier.Originate{CallID: uuid.Must(uuid.NewV7()), From: from, To: to}
}

// dialed is a call that was originated at a time.
type dialed struct {
	carrier.Originate
	at time.Time
}

// originate originates a call. The time is that of the carrier.
func originate(ctx context.Context, over carrier.Carrier, o carrier.Originate) (dialed, error) {
	at, err := over.Originate(ctx, o)
	return dialed{o, at}, err
}

// dial originates a call that the carrier must take.
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

// reader reads the feed from its beginning, keeps what it read, and holds it to the rules of the feed.
type reader struct {
	t     T
	trunk carrier.EventStream
	feed  string
	place int64
	all   []carrier.Event
}

func read(t T, trunk carrier.EventStream) *reader { return &reader{t: t, trunk: trunk} }

// readBatch reads one batch, waiting for it as long.
func (r *reader) readBatch(wait time.Duration) int {
	r.t.Helper()
	batch, err := r.trunk.Events(r.t.Context(), r.place, wait)
	if err != nil {
		r.t.Fatalf("news after %d: %v", r.place, err)
	}
	if batch.Feed == "" || r.feed != "" && batch.Feed != r.feed {
		r.t.Fatalf("the feed is called %q, was %q", batch.Feed, r.feed)
	}
	r.feed = batch.Feed
	for _, news := range batch.Events {
		if news.Seq <= r.place {
			r.t.Fatalf("news %d after place %d", news.Seq, r.place)
		}
		r.place = news.Seq
	}
	r.all = append(r.all, batch.Events...)
	return len(batch.Events)
}

// eventsOf are the news of one call so far.
func (r *reader) eventsOf(callID uuid.UUID) (news []carrier.Event) {
	for _, one := range r.all {
		if one.CallID == callID {
			news = append(news, one)
		}
	}
	return news
}

// until reads until a call has had news of a kind, and answers its news.
func (r *reader) until(callID uuid.UUID, kind carrier.Kind) []carrier.Event {
	r.t.Helper()
	for begun := time.Now(); ; r.readBatch(time.Second) {
		if news := r.eventsOf(callID); count(news, kind) > 0 {
			return news
		}
		if time.Since(begun) > testTimeout {
			r.t.Fatalf("no news of kind %s of call %s: %v", kind, callID, kinds(r.eventsOf(callID)))
		}
	}
}

// readAll reads what there is.
func (r *reader) readAll() {
	r.t.Helper()
	for r.readBatch(0) > 0 {
	}
}

func count(news []carrier.Event, kind carrier.Kind) (times int) {
	for _, one := range news {
		if one.Kind == kind {
			times++
		}
	}
	return times
}

func kinds(news []carrier.Event) (all []carrier.Kind) {
	for _, one := range news {
		if one.Kind != carrier.Utterance {
			all = append(all, one.Kind)
		}
	}
	return all
}
