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
	isAway      = "an unreachable carrier returns errors, but not ErrUnknownCall"
	silentOne   = "an originate without a response is not a refusal"
	givenUp     = "a canceled originate is not a refusal"
	unpermitted = "nothing is sent without a permit"
	unknownCall = "a call that was not dialed is unknown"
	ringing     = "a call is hung up while it rings"
	byItself    = "hanging up an ended call does not change it"
	inboundCall = "an inbound call rings, is answered and ends"
	again       = "events can be read again from any position"
	waiting     = "Events waits only if there are no events"
	restart     = "a restarted carrier keeps its events and ends lost calls"
	forgetting  = "a carrier without its memory starts a new stream"
)

func mutations() []mutation {
	return slices.Concat(originateMutations(), hangupMutations(), newsMutations())
}

func originateMutations() []mutation {
	unguarded := func(b *broken, n *carriertest.Network) {
		b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
			return n.NewCarrier().Originate(ctx, o)
		}
	}
	return []mutation{
		{name: "sends every originate twice", caughtBy: wholeCall, hurt: func(b *broken, n *carriertest.Network) {
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				_, _ = n.NewCarrier().Originate(ctx, o)
				return b.Carrier.Originate(ctx, o)
			}
		}},
		{name: "dials again at a second originate", caughtBy: twice, hurt: unguarded},
		{
			name: "dials again at concurrent originates", caughtBy: "concurrent originates of a call dial once",
			hurt: unguarded,
		},
		{name: "accepts a second originate", caughtBy: twice, hurt: func(b *broken, _ *carriertest.Network) {
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				at, err := b.Carrier.Originate(ctx, o)
				if !errors.Is(err, carrier.ErrAlreadyOriginated) {
					return at, err
				}
				return at, nil
			}
		}},
		{name: "reports a refusal as an unknown result", caughtBy: refusal,
			hurt: func(b *broken, _ *carriertest.Network) {
				b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
					at, err := b.Carrier.Originate(ctx, o)
					if err != nil {
						return at, errors.New("something went wrong")
					}
					return at, nil
				}
			}},
		{name: "refuses without a cause", caughtBy: refusal, hurt: func(b *broken, _ *carriertest.Network) {
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				at, err := b.Carrier.Originate(ctx, o)
				if refused, is := errors.AsType[*carrier.Refused](err); is {
					refused.Cause = ""
				}
				return at, err
			}
		}},
		{name: "refuses and rings", caughtBy: refusal, hurt: func(b *broken, n *carriertest.Network) {
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				at, err := b.Carrier.Originate(ctx, o)
				if _, is := errors.AsType[*carrier.Refused](err); is {
					o.To = n.BusyPhone
					_, _ = n.NewCarrier().Originate(ctx, o)
				}
				return at, err
			}
		}},
		{name: "reports no response as a refusal", caughtBy: silentOne, hurt: func(b *broken, _ *carriertest.Network) {
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				at, err := b.Carrier.Originate(ctx, o)
				if err != nil {
					return at, &carrier.Refused{Cause: callstate.NetworkOutOfOrder, Err: err}
				}
				return at, nil
			}
		}},
		{name: "reports no response as success", caughtBy: givenUp, hurt: func(b *broken, _ *carriertest.Network) {
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				at, _ := b.Carrier.Originate(ctx, o)
				return at, nil
			}
		}},
		{name: "originates again if there is no response", caughtBy: givenUp,
			hurt: func(b *broken, n *carriertest.Network) {
				b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
					at, err := b.Carrier.Originate(ctx, o)
					if err == nil || errors.Is(err, carrier.ErrAlreadyOriginated) {
						return at, err
					}
					again, cancel := context.WithTimeout(ignoring(ctx), time.Second)
					defer cancel()
					return n.NewCarrier().Originate(again, o)
				}
			}},
		{name: "sends without a permit", caughtBy: unpermitted, hurt: func(b *broken, _ *carriertest.Network) {
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				o.Permit = nil
				return b.Carrier.Originate(ctx, o)
			}
		}},
		{name: "continues after the originate is canceled", caughtBy: givenUp,
			hurt: func(b *broken, _ *carriertest.Network) {
				b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
					return b.Carrier.Originate(ignoring(ctx), o)
				}
			}},
		{name: "reports that it is ready while it is unreachable", caughtBy: isAway,
			hurt: func(b *broken, _ *carriertest.Network) {
				b.ready = func(context.Context) error { return nil }
			}},
		{name: "reports an unreachable carrier as an unknown result", caughtBy: isAway,
			hurt: func(b *broken, _ *carriertest.Network) {
				b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
					at, err := b.Carrier.Originate(ctx, o)
					if err != nil {
						return at, errors.New("something went wrong")
					}
					return at, nil
				}
			}},
		{name: "returns ErrUnknownCall while it is unreachable", caughtBy: isAway,
			hurt: func(b *broken, _ *carriertest.Network) {
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
		{name: "does not hang up before the phone rings", caughtBy: "a call is hung up before it rings", hurt: deaf},
		{name: "does not hang up a ringing call", caughtBy: ringing, hurt: deaf},
		{name: "does not hang up an answered call", caughtBy: "a call is hung up after the answer", hurt: deaf},
		{name: "hangs up only calls of its own process", caughtBy: "another process can end a call of this one",
			hurt: func(_ *broken, n *carriertest.Network) {
				another := n.NewCarrier
				n.NewCarrier = func() carrier.EventStream { b := &broken{Carrier: another()}; b.hangup = b.Carrier.Find; return b }
			}},
		{
			name: "has another name in each process", caughtBy: "another process can end a call of this one",
			hurt: func(b *broken, _ *carriertest.Network) { b.name = "here" },
		},
		{
			name: "returns no error when it hangs up an unknown call", caughtBy: unknownCall,
			hurt: hangup(func(_ *broken, _ *carrier.CallStatus, err *error) { *err = nil }),
		},
		{
			name: "returns no time of the end", caughtBy: ringing,
			hurt: hangup(func(_ *broken, known *carrier.CallStatus, _ *error) { known.EndedAt = nil }),
		},
		{
			name: "reports every end as a hangup by the dialer", caughtBy: byItself,
			hurt: hangup(func(_ *broken, known *carrier.CallStatus, _ *error) { known.ByUs = true }),
		},
		{
			name: "refuses an inbound call as if it were hung up", caughtBy: "an inbound call is refused as busy",
			hurt: func(b *broken, _ *carriertest.Network) { b.refuse = b.Carrier.Hangup },
		},
		{name: "forgets a call that it hung up", caughtBy: ringing, hurt: func(b *broken, _ *carriertest.Network) {
			done := map[uuid.UUID]bool{}
			b.hangup = func(ctx context.Context, id uuid.UUID) (carrier.CallStatus, error) {
				if done[id] {
					return carrier.CallStatus{}, carrier.ErrUnknownCall
				}
				done[id] = true
				return b.Carrier.Hangup(ctx, id)
			}
		}},
		{name: "returns no error for an unknown call", caughtBy: unknownCall, hurt: func(b *broken, _ *carriertest.Network) {
			b.find = func(context.Context, uuid.UUID) (carrier.CallStatus, error) { return carrier.CallStatus{}, nil }
		}},
		{name: "returns less than the events contain", caughtBy: wholeCall,
			hurt: func(b *broken, _ *carriertest.Network) {
				b.find = func(ctx context.Context, id uuid.UUID) (carrier.CallStatus, error) {
					known, err := b.Carrier.Find(ctx, id)
					known.AnsweredAt = nil
					return known, err
				}
			}},
		{name: "answers unknown calls", caughtBy: unknownCall, hurt: func(b *broken, _ *carriertest.Network) {
			b.answer = func(context.Context, uuid.UUID) error { return nil }
		}},
		{name: "returns an error for a second answer", caughtBy: inboundCall,
			hurt: func(b *broken, _ *carriertest.Network) {
				done := false
				b.answer = func(ctx context.Context, id uuid.UUID) error {
					if done {
						return errors.New("answered already")
					}
					done = true
					return b.Carrier.Answer(ctx, id)
				}
			}},
		{name: "loses its calls in a restart", caughtBy: restart, hurt: func(b *broken, n *carriertest.Network) {
			begin := n.Start
			n.Start = func(forgetful bool) {
				begin(forgetful)
				b.find = func(context.Context, uuid.UUID) (carrier.CallStatus, error) {
					return carrier.CallStatus{}, carrier.ErrUnknownCall
				}
			}
		}},
		{name: "dials again after a restart", caughtBy: restart, hurt: func(b *broken, n *carriertest.Network) {
			begin, orders := n.Start, []carrier.Originate{}
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				orders = append(orders, o)
				return b.Carrier.Originate(ctx, o)
			}
			n.Start = func(forgetful bool) {
				begin(forgetful)
				for _, o := range orders {
					_, _ = n.NewCarrier().Originate(context.Background(), o)
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
		{name: "returns the events in reverse order", caughtBy: wholeCall,
			hurt: rewriting(func(events []carrier.Event) []carrier.Event {
				if !slices.ContainsFunc(events, func(n carrier.Event) bool { return n.Kind == carrier.Ended }) {
					return nil // wait until all events of the call exist
				}
				slices.Reverse(events)
				return events
			})},
		{name: "swaps answer and ringing", caughtBy: wholeCall, hurt: item(func(n *carrier.Event) {
			if swapped, is := map[carrier.Kind]carrier.Kind{carrier.Ringing: carrier.Answered, carrier.Answered: carrier.Ringing}[n.Kind]; is {
				n.Kind = swapped
			}
		})},
		{name: "returns every answer event twice", caughtBy: wholeCall,
			hurt: rewriting(func(events []carrier.Event) (all []carrier.Event) {
				for _, n := range events {
					n.Seq *= 2
					if all = append(all, n); n.Kind == carrier.Answered {
						n.Seq++
						all = append(all, n)
					}
				}
				return all
			})},
		{name: "returns no ringing event", caughtBy: wholeCall, hurt: without(carrier.Ringing)},
		{name: "returns no utterance", caughtBy: wholeCall, hurt: without(carrier.Utterance)},
		{name: "sets no time", caughtBy: wholeCall, hurt: item(func(n *carrier.Event) { n.At = time.Time{} })},
		{
			name: "has a clock that is one day fast", caughtBy: wholeCall,
			hurt: item(func(n *carrier.Event) { n.At = n.At.Add(24 * time.Hour) }),
		},
		{
			name: "returns no time of the dial", caughtBy: wholeCall,
			hurt: item(func(n *carrier.Event) { n.DialedAt = nil }),
		},
		{name: "returns no called number", caughtBy: wholeCall, hurt: item(func(n *carrier.Event) { n.To = "" })},
		{name: "returns no cause", caughtBy: wholeCall, hurt: item(func(n *carrier.Event) { n.Cause = "" })},
		{name: "returns the same cause for every call", caughtBy: "a busy number ends without an answer",
			hurt: item(func(n *carrier.Event) {
				if n.Kind == carrier.Ended {
					n.Cause = callstate.NormalClearing
				}
			})},
		{
			name: "reports a hangup of the dialer as one of the callee", caughtBy: ringing,
			hurt: item(func(n *carrier.Event) { n.ByUs = false }),
		},
		{
			name: "swaps the caller and the callee", caughtBy: inboundCall,
			hurt: item(func(n *carrier.Event) { n.Inbound = false }),
		},
		{name: "mixes the events of two calls",
			caughtBy: "events of concurrent calls keep the order of each call", hurt: func(b *broken, _ *carriertest.Network) {
				var last uuid.UUID
				eachEvent(b, func(n *carrier.Event) {
					if n.Kind == carrier.Answered {
						n.CallID, last = last, n.CallID
					}
				})
			}},
		{name: "returns the events from the beginning each time", caughtBy: again,
			hurt: func(b *broken, _ *carriertest.Network) {
				b.events = func(ctx context.Context, _ int64, wait time.Duration) (carrier.Batch, error) {
					return b.Carrier.Events(ctx, 0, wait)
				}
			}},
		{name: "returns each event to one reader only", caughtBy: again, hurt: func(_ *broken, n *carriertest.Network) {
			another := n.NewCarrier
			n.NewCarrier = func() carrier.EventStream {
				b := &broken{Carrier: another()}
				eachBatch(b, func([]carrier.Event) []carrier.Event { return nil })
				return b
			}
		}},
		{name: "does not wait for events", caughtBy: waiting, hurt: func(b *broken, _ *carriertest.Network) {
			b.events = func(ctx context.Context, after int64, _ time.Duration) (carrier.Batch, error) {
				return b.Carrier.Events(ctx, after, 0)
			}
		}},
		{name: "waits although there are events", caughtBy: waiting, hurt: func(b *broken, _ *carriertest.Network) {
			b.events = func(ctx context.Context, after int64, wait time.Duration) (carrier.Batch, error) {
				batch, err := b.Carrier.Events(ctx, after+1_000_000, wait)
				if err != nil || wait < 10*time.Second {
					return b.Carrier.Events(ctx, after, 0)
				}
				return batch, err
			}
		}},
		{name: "keeps the name of the stream after it lost its memory", caughtBy: forgetting,
			hurt: func(b *broken, _ *carriertest.Network) {
				b.events = func(ctx context.Context, after int64, wait time.Duration) (carrier.Batch, error) {
					batch, err := b.Carrier.Events(ctx, after, wait)
					batch.Stream = "feed"
					return batch, err
				}
			}},
		{name: "changes the name of the stream in a restart", caughtBy: restart,
			hurt: func(b *broken, n *carriertest.Network) {
				begin, times := n.Start, 0
				n.Start = func(forgetful bool) { begin(forgetful); times++ }
				b.events = func(ctx context.Context, after int64, wait time.Duration) (carrier.Batch, error) {
					batch, err := b.Carrier.Events(ctx, after, wait)
					batch.Stream += strings.Repeat("x", times)
					return batch, err
				}
			}},
	}
}

func TestConformance_EveryBrokenRuleIsDetected(t *testing.T) {
	t.Parallel()
	for _, m := range mutations() {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			n := fresh(t)
			b := &broken{Carrier: n.Carrier}
			m.hurt(b, n)
			n.Carrier = b
			faults := runRule(t, m.caughtBy, n)
			if len(faults) == 0 {
				t.Errorf("%q does not find a carrier that %s", m.caughtBy, m.name)
			}
			t.Logf("caught: %s", strings.Join(faults, "; "))
		})
	}
}
