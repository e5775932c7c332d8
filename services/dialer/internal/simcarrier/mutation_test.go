package simcarrier_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/carrier/carriertest"
)

type mutation struct {
	name, caughtBy string
	hurt           func(b *broken, n *carriertest.Network)
}

const (
	wholeCall   = "the events of a call are complete"
	twice       = "a second originate of a call dials nothing"
	refusal     = "a refusal is definite"
	isAway      = "an unreachable carrier returns no call"
	silentOne   = "an originate without a response is not a refusal"
	givenUp     = "a canceled originate is not a refusal"
	unpermitted = "nothing is sent without a permit"
	nobody      = "a call that was not dialed is unknown"
	ringing     = "a call is hung up while it rings"
	byItself    = "hanging up an ended call does not change it"
	inboundCall = "an inbound call rings, is answered and ends"
	again       = "events can be read again from any position"
	waiting     = "Events waits only if there are no events"
	restart     = "a restarted carrier keeps its events and ends lost calls"
	forgetting  = "a carrier without its memory starts a new stream"
)

// mutations break one rule each.
func mutations() []mutation {
	return slices.Concat(originateMutations(), hangupMutations(), newsMutations())
}

func originateMutations() []mutation {
	unguarded := func(b *broken, n *carriertest.Network) {
		b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
			return n.Another().Originate(ctx, o)
		}
	}
	return []mutation{
		{"sends every originate twice", wholeCall, func(b *broken, n *carriertest.Network) {
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				_, _ = n.Another().Originate(ctx, o)
				return b.Carrier.Originate(ctx, o)
			}
		}},
		{"dials again at a second originate", twice, unguarded},
		{"dials again at concurrent originates", "concurrent originates of a call dial once", unguarded},
		{"accepts a second originate", twice, func(b *broken, _ *carriertest.Network) {
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				at, err := b.Carrier.Originate(ctx, o)
				if !errors.Is(err, carrier.ErrAlreadyOriginated) {
					return at, err
				}
				return at, nil
			}
		}},
		{"reports a refusal as an unknown result", refusal, func(b *broken, _ *carriertest.Network) {
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				at, err := b.Carrier.Originate(ctx, o)
				if err != nil {
					return at, errors.New("something went wrong")
				}
				return at, nil
			}
		}},
		{"refuses without a cause", refusal, func(b *broken, _ *carriertest.Network) {
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				at, err := b.Carrier.Originate(ctx, o)
				if refused, is := errors.AsType[*carrier.Refused](err); is {
					refused.Cause = ""
				}
				return at, err
			}
		}},
		{"refuses and rings", refusal, func(b *broken, n *carriertest.Network) {
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				at, err := b.Carrier.Originate(ctx, o)
				if _, is := errors.AsType[*carrier.Refused](err); is {
					o.To = n.Busy
					_, _ = n.Another().Originate(ctx, o)
				}
				return at, err
			}
		}},
		{"reports no response as a refusal", silentOne, func(b *broken, _ *carriertest.Network) {
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				at, err := b.Carrier.Originate(ctx, o)
				if err != nil {
					return at, &carrier.Refused{Cause: callstate.NetworkOutOfOrder, Err: err}
				}
				return at, nil
			}
		}},
		{"reports no response as success", givenUp, func(b *broken, _ *carriertest.Network) {
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				at, _ := b.Carrier.Originate(ctx, o)
				return at, nil
			}
		}},
		{"originates again if there is no response", givenUp, func(b *broken, n *carriertest.Network) {
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				at, err := b.Carrier.Originate(ctx, o)
				if err == nil || errors.Is(err, carrier.ErrAlreadyOriginated) {
					return at, err
				}
				again, cancel := context.WithTimeout(ignoring(ctx), time.Second)
				defer cancel()
				return n.Another().Originate(again, o)
			}
		}},
		{"sends without a permit", unpermitted, func(b *broken, _ *carriertest.Network) {
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				o.Permit = nil
				return b.Carrier.Originate(ctx, o)
			}
		}},
		{"continues after the originate is canceled", givenUp, func(b *broken, _ *carriertest.Network) {
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				return b.Carrier.Originate(ignoring(ctx), o)
			}
		}},
		{"reports that it is ready while it is unreachable", isAway, func(b *broken, _ *carriertest.Network) {
			b.ready = func(context.Context) error { return nil }
		}},
		{"reports an unreachable carrier as an unknown result", isAway, func(b *broken, _ *carriertest.Network) {
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				at, err := b.Carrier.Originate(ctx, o)
				if err != nil {
					return at, errors.New("something went wrong")
				}
				return at, nil
			}
		}},
		{"returns ErrUnknownCall while it is unreachable", isAway, func(b *broken, _ *carriertest.Network) {
			b.find = func(ctx context.Context, id uuid.UUID) (carrier.CallStatus, error) {
				known, err := b.Carrier.Find(ctx, id)
				if err != nil {
					err = carrier.ErrUnknownCall
				}
				return known, err
			}
		}},
	}
}

func hangupMutations() []mutation {
	hangup := func(change func(*broken, *carrier.CallStatus, *error)) func(*broken, *carriertest.Network) {
		return func(b *broken, _ *carriertest.Network) {
			b.hangup = func(ctx context.Context, id uuid.UUID) (carrier.CallStatus, error) {
				known, err := b.Carrier.Hangup(ctx, id)
				change(b, &known, &err)
				return known, err
			}
		}
	}
	deaf := func(b *broken, _ *carriertest.Network) { b.hangup = b.Carrier.Find }
	return []mutation{
		{"does not hang up before the phone rings", "a call is hung up before it rings", deaf},
		{"does not hang up a ringing call", ringing, deaf},
		{"does not hang up an answered call", "a call is hung up after the answer", deaf},
		{"hangs up only calls of its own process", "another process can end a call of this one", func(_ *broken, n *carriertest.Network) {
			another := n.Another
			n.Another = func() carrier.EventStream { b := &broken{Carrier: another()}; b.hangup = b.Carrier.Find; return b }
		}},
		{"has another name in each process", "another process can end a call of this one", func(b *broken, _ *carriertest.Network) { b.name = "here" }},
		{"returns no error when it hangs up an unknown call", nobody, hangup(func(_ *broken, _ *carrier.CallStatus, err *error) { *err = nil })},
		{"returns no time of the end", ringing, hangup(func(_ *broken, known *carrier.CallStatus, _ *error) { known.EndedAt = nil })},
		{"reports every end as a hangup by the dialer", byItself, hangup(func(_ *broken, known *carrier.CallStatus, _ *error) { known.ByUs = true })},
		{"forgets a call that it hung up", ringing, func(b *broken, _ *carriertest.Network) {
			done := map[uuid.UUID]bool{}
			b.hangup = func(ctx context.Context, id uuid.UUID) (carrier.CallStatus, error) {
				if done[id] {
					return carrier.CallStatus{}, carrier.ErrUnknownCall
				}
				done[id] = true
				return b.Carrier.Hangup(ctx, id)
			}
		}},
		{"returns no error for an unknown call", nobody, func(b *broken, _ *carriertest.Network) {
			b.find = func(context.Context, uuid.UUID) (carrier.CallStatus, error) { return carrier.CallStatus{}, nil }
		}},
		{"returns less than the events contain", wholeCall, func(b *broken, _ *carriertest.Network) {
			b.find = func(ctx context.Context, id uuid.UUID) (carrier.CallStatus, error) {
				known, err := b.Carrier.Find(ctx, id)
				known.AnsweredAt = nil
				return known, err
			}
		}},
		{"answers unknown calls", nobody, func(b *broken, _ *carriertest.Network) {
			b.answer = func(context.Context, uuid.UUID) error { return nil }
		}},
		{"returns an error for a second answer", inboundCall, func(b *broken, _ *carriertest.Network) {
			done := false
			b.answer = func(ctx context.Context, id uuid.UUID) error {
				if done {
					return errors.New("answered already")
				}
				done = true
				return b.Carrier.Answer(ctx, id)
			}
		}},
		{"loses its calls in a restart", restart, func(b *broken, n *carriertest.Network) {
			begin := n.Start
			n.Start = func(forgetful bool) {
				begin(forgetful)
				b.find = func(context.Context, uuid.UUID) (carrier.CallStatus, error) {
					return carrier.CallStatus{}, carrier.ErrUnknownCall
				}
			}
		}},
		{"dials again after a restart", restart, func(b *broken, n *carriertest.Network) {
			begin, orders := n.Start, []carrier.Originate{}
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				orders = append(orders, o)
				return b.Carrier.Originate(ctx, o)
			}
			n.Start = func(forgetful bool) {
				begin(forgetful)
				for _, o := range orders {
					_, _ = n.Another().Originate(context.Background(), o)
				}
			}
		}},
	}
}

func newsMutations() []mutation {
	rewriting := func(rewrite func([]carrier.Event) []carrier.Event) func(*broken, *carriertest.Network) {
		return func(b *broken, _ *carriertest.Network) { eachBatch(b, rewrite) }
	}
	item := func(rewrite func(*carrier.Event)) func(*broken, *carriertest.Network) {
		return func(b *broken, _ *carriertest.Network) { eachEvent(b, rewrite) }
	}
	without := func(kind carrier.Kind) func(*broken, *carriertest.Network) {
		return rewriting(func(events []carrier.Event) []carrier.Event {
			return slices.DeleteFunc(events, func(n carrier.Event) bool { return n.Kind == kind })
		})
	}
	return []mutation{
		{"returns the events in reverse order", wholeCall, rewriting(func(events []carrier.Event) []carrier.Event {
			if !slices.ContainsFunc(events, func(n carrier.Event) bool { return n.Kind == carrier.Ended }) {
				return nil // until all events of the call exist
			}
			slices.Reverse(events)
			return events
		})},
		{"swaps answer and ringing", wholeCall, item(func(n *carrier.Event) {
			if swapped, is := map[carrier.Kind]carrier.Kind{carrier.Ringing: carrier.Answered, carrier.Answered: carrier.Ringing}[n.Kind]; is {
				n.Kind = swapped
			}
		})},
		{"returns every answer event twice", wholeCall, rewriting(func(events []carrier.Event) (all []carrier.Event) {
			for _, n := range events {
				n.Seq *= 2
				if all = append(all, n); n.Kind == carrier.Answered {
					n.Seq++
					all = append(all, n)
				}
			}
			return all
		})},
		{"returns no ringing event", wholeCall, without(carrier.Ringing)},
		{"returns no utterance", wholeCall, without(carrier.Utterance)},
		{"sets no time", wholeCall, item(func(n *carrier.Event) { n.At = time.Time{} })},
		{"has a clock that is one day fast", wholeCall, item(func(n *carrier.Event) { n.At = n.At.Add(24 * time.Hour) })},
		{"returns no time of the dial", wholeCall, item(func(n *carrier.Event) { n.DialedAt = nil })},
		{"returns no called number", wholeCall, item(func(n *carrier.Event) { n.To = "" })},
		{"returns no cause", wholeCall, item(func(n *carrier.Event) { n.Cause = "" })},
		{"returns the same cause for every call", "a busy number ends without an answer", item(func(n *carrier.Event) {
			if n.Kind == carrier.Ended {
				n.Cause = callstate.NormalClearing
			}
		})},
		{"reports a hangup of the dialer as one of the callee", ringing, item(func(n *carrier.Event) { n.ByUs = false })},
		{"swaps the caller and the callee", inboundCall, item(func(n *carrier.Event) { n.Inbound = false })},
		{"mixes the events of two calls", "events of concurrent calls keep the order of each call", func(b *broken, _ *carriertest.Network) {
			var last uuid.UUID
			eachEvent(b, func(n *carrier.Event) {
				if n.Kind == carrier.Answered {
					n.CallID, last = last, n.CallID
				}
			})
		}},
		{"returns the events from the beginning each time", again, func(b *broken, _ *carriertest.Network) {
			b.events = func(ctx context.Context, _ int64, wait time.Duration) (carrier.Batch, error) {
				return b.Carrier.Events(ctx, 0, wait)
			}
		}},
		{"returns each event to one reader only", again, func(_ *broken, n *carriertest.Network) {
			another := n.Another
			n.Another = func() carrier.EventStream {
				b := &broken{Carrier: another()}
				eachBatch(b, func([]carrier.Event) []carrier.Event { return nil })
				return b
			}
		}},
		{"does not wait for events", waiting, func(b *broken, _ *carriertest.Network) {
			b.events = func(ctx context.Context, after int64, _ time.Duration) (carrier.Batch, error) {
				return b.Carrier.Events(ctx, after, 0)
			}
		}},
		{"waits although there are events", waiting, func(b *broken, _ *carriertest.Network) {
			b.events = func(ctx context.Context, after int64, wait time.Duration) (carrier.Batch, error) {
				batch, err := b.Carrier.Events(ctx, after+1_000_000, wait)
				if err != nil || wait < 10*time.Second {
					return b.Carrier.Events(ctx, after, 0)
				}
				return batch, err
			}
		}},
		{"keeps the name of the stream after it lost its memory", forgetting, func(b *broken, _ *carriertest.Network) {
			b.events = func(ctx context.Context, after int64, wait time.Duration) (carrier.Batch, error) {
				batch, err := b.Carrier.Events(ctx, after, wait)
				batch.Feed = "feed"
				return batch, err
			}
		}},
		{"changes the name of the stream in a restart", restart, func(b *broken, n *carriertest.Network) {
			begin, times := n.Start, 0
			n.Start = func(forgetful bool) { begin(forgetful); times++ }
			b.events = func(ctx context.Context, after int64, wait time.Duration) (carrier.Batch, error) {
				batch, err := b.Carrier.Events(ctx, after, wait)
				batch.Feed += strings.Repeat("x", times)
				return batch, err
			}
		}},
	}
}

// The conformance suite must fail for a carrier that breaks a rule.
func TestConformance_FindsEveryBrokenRule(t *testing.T) {
	t.Parallel()
	for _, m := range mutations() {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			n := fresh(t)
			b := &broken{Carrier: n.Carrier}
			m.hurt(b, n)
			n.Carrier = b
			faults := judge(t, m.caughtBy, n)
			if len(faults) == 0 {
				t.Errorf("%q does not find a carrier that %s", m.caughtBy, m.name)
			}
			t.Logf("caught: %s", strings.Join(faults, "; "))
		})
	}
}
