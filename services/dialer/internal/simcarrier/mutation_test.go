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
	wholeCall   = "a call is told from its dial to its end"
	twice       = "asked twice dials once"
	refusal     = "a refusal is definite"
	isAway      = "a carrier that is away was not asked and knows nothing"
	silentOne   = "an originate that is not answered is nobody's refusal"
	givenUp     = "an originate that is given up is nobody's refusal"
	unpermitted = "nothing leaves that is not permitted"
	nobody      = "a call that nobody dialled is unknown"
	ringing     = "a call is hung up while it rings"
	byItself    = "a call that ended by itself stays as it ended"
	inboundCall = "an inbound call rings, is answered and ends"
	again       = "news are read again from any place"
	waiting     = "news are waited for, and only when there are none"
	restart     = "a restarted carrier knows what it told and ends what it lost"
	forgetting  = "a carrier without its memory begins its news anew"
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
		{"dials again when asked again", twice, unguarded},
		{"dials again when asked by many", "asked by many at once dials once", unguarded},
		{"says yes when asked again", twice, func(b *broken, _ *carriertest.Network) {
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				at, err := b.Carrier.Originate(ctx, o)
				if !errors.Is(err, carrier.ErrAlreadyOriginated) {
					return at, err
				}
				return at, nil
			}
		}},
		{"takes no for perhaps", refusal, func(b *broken, _ *carriertest.Network) {
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
		{"takes silence for no", silentOne, func(b *broken, _ *carriertest.Network) {
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				at, err := b.Carrier.Originate(ctx, o)
				if err != nil {
					return at, &carrier.Refused{Cause: callstate.NetworkOutOfOrder, Err: err}
				}
				return at, nil
			}
		}},
		{"takes silence for yes", givenUp, func(b *broken, _ *carriertest.Network) {
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				at, _ := b.Carrier.Originate(ctx, o)
				return at, nil
			}
		}},
		{"asks again when nobody answers", givenUp, func(b *broken, n *carriertest.Network) {
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
		{"sends what is not permitted", unpermitted, func(b *broken, _ *carriertest.Network) {
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				o.Permit = nil
				return b.Carrier.Originate(ctx, o)
			}
		}},
		{"goes on when it is given up", givenUp, func(b *broken, _ *carriertest.Network) {
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				return b.Carrier.Originate(ignoring(ctx), o)
			}
		}},
		{"is ready when it is away", isAway, func(b *broken, _ *carriertest.Network) {
			b.ready = func(context.Context) error { return nil }
		}},
		{"takes away for perhaps", isAway, func(b *broken, _ *carriertest.Network) {
			b.originate = func(ctx context.Context, o carrier.Originate) (time.Time, error) {
				at, err := b.Carrier.Originate(ctx, o)
				if err != nil {
					return at, errors.New("something went wrong")
				}
				return at, nil
			}
		}},
		{"knows no call when it is away", isAway, func(b *broken, _ *carriertest.Network) {
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
		{"hangs up nothing before it rings", "a call is hung up before it rings", deaf},
		{"hangs up nothing that rings", ringing, deaf},
		{"hangs up nothing that talks", "a call is hung up after the answer", deaf},
		{"hangs up only what it dialled itself", "another process ends what this one dialled", func(_ *broken, n *carriertest.Network) {
			another := n.Another
			n.Another = func() carrier.EventStream { b := &broken{Carrier: another()}; b.hangup = b.Carrier.Find; return b }
		}},
		{"is another trunk in each process", "another process ends what this one dialled", func(b *broken, _ *carriertest.Network) { b.name = "here" }},
		{"knows every call when hanging up", nobody, hangup(func(_ *broken, _ *carrier.CallStatus, err *error) { *err = nil })},
		{"does not say when it ended", ringing, hangup(func(_ *broken, known *carrier.CallStatus, _ *error) { known.EndedAt = nil })},
		{"claims every end for us", byItself, hangup(func(_ *broken, known *carrier.CallStatus, _ *error) { known.ByUs = true })},
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
		{"finds every call", nobody, func(b *broken, _ *carriertest.Network) {
			b.find = func(context.Context, uuid.UUID) (carrier.CallStatus, error) { return carrier.CallStatus{}, nil }
		}},
		{"finds less than it told", wholeCall, func(b *broken, _ *carriertest.Network) {
			b.find = func(ctx context.Context, id uuid.UUID) (carrier.CallStatus, error) {
				known, err := b.Carrier.Find(ctx, id)
				known.AnsweredAt = nil
				return known, err
			}
		}},
		{"answers calls that are not there", nobody, func(b *broken, _ *carriertest.Network) {
			b.answer = func(context.Context, uuid.UUID) error { return nil }
		}},
		{"is offended by a second answer", inboundCall, func(b *broken, _ *carriertest.Network) {
			done := false
			b.answer = func(ctx context.Context, id uuid.UUID) error {
				if done {
					return errors.New("answered already")
				}
				done = true
				return b.Carrier.Answer(ctx, id)
			}
		}},
		{"forgets over a restart", restart, func(b *broken, n *carriertest.Network) {
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
		return func(b *broken, _ *carriertest.Network) { eachNews(b, rewrite) }
	}
	item := func(rewrite func(*carrier.Event)) func(*broken, *carriertest.Network) {
		return func(b *broken, _ *carriertest.Network) { eachItem(b, rewrite) }
	}
	without := func(kind carrier.Kind) func(*broken, *carriertest.Network) {
		return rewriting(func(news []carrier.Event) []carrier.Event {
			return slices.DeleteFunc(news, func(n carrier.Event) bool { return n.Kind == kind })
		})
	}
	return []mutation{
		{"tells news backwards", wholeCall, rewriting(func(news []carrier.Event) []carrier.Event {
			if !slices.ContainsFunc(news, func(n carrier.Event) bool { return n.Kind == carrier.Ended }) {
				return nil // until all events of the call exist
			}
			slices.Reverse(news)
			return news
		})},
		{"swaps answer and ringing", wholeCall, item(func(n *carrier.Event) {
			if swapped, is := map[carrier.Kind]carrier.Kind{carrier.Ringing: carrier.Answered, carrier.Answered: carrier.Ringing}[n.Kind]; is {
				n.Kind = swapped
			}
		})},
		{"tells every answer twice", wholeCall, rewriting(func(news []carrier.Event) (all []carrier.Event) {
			for _, n := range news {
				n.Seq *= 2
				if all = append(all, n); n.Kind == carrier.Answered {
					n.Seq++
					all = append(all, n)
				}
			}
			return all
		})},
		{"does not tell of ringing", wholeCall, without(carrier.Ringing)},
		{"does not tell what was said", wholeCall, without(carrier.Utterance)},
		{"has no clock", wholeCall, item(func(n *carrier.Event) { n.At = time.Time{} })},
		{"has a clock that is a day ahead", wholeCall, item(func(n *carrier.Event) { n.At = n.At.Add(24 * time.Hour) })},
		{"forgets when we dialled", wholeCall, item(func(n *carrier.Event) { n.DialedAt = nil })},
		{"forgets who was called", wholeCall, item(func(n *carrier.Event) { n.To = "" })},
		{"gives no cause", wholeCall, item(func(n *carrier.Event) { n.Cause = "" })},
		{"gives every call the same cause", "a busy number ends without an answer", item(func(n *carrier.Event) {
			if n.Kind == carrier.Ended {
				n.Cause = callstate.NormalClearing
			}
		})},
		{"takes our hang-up for theirs", ringing, item(func(n *carrier.Event) { n.ByUs = false })},
		{"takes callers for callees", inboundCall, item(func(n *carrier.Event) { n.Inbound = false })},
		{"mixes calls up", "news of many calls keep the order of each", func(b *broken, _ *carriertest.Network) {
			var last uuid.UUID
			eachItem(b, func(n *carrier.Event) {
				if n.Kind == carrier.Answered {
					n.CallID, last = last, n.CallID
				}
			})
		}},
		{"begins at the beginning each time", again, func(b *broken, _ *carriertest.Network) {
			b.news = func(ctx context.Context, _ int64, wait time.Duration) (carrier.Batch, error) {
				return b.Carrier.Events(ctx, 0, wait)
			}
		}},
		{"tells each piece of news to one reader only", again, func(_ *broken, n *carriertest.Network) {
			another := n.Another
			n.Another = func() carrier.EventStream {
				b := &broken{Carrier: another()}
				eachNews(b, func([]carrier.Event) []carrier.Event { return nil })
				return b
			}
		}},
		{"does not wait", waiting, func(b *broken, _ *carriertest.Network) {
			b.news = func(ctx context.Context, after int64, _ time.Duration) (carrier.Batch, error) {
				return b.Carrier.Events(ctx, after, 0)
			}
		}},
		{"waits though there are news", waiting, func(b *broken, _ *carriertest.Network) {
			b.news = func(ctx context.Context, after int64, wait time.Duration) (carrier.Batch, error) {
				batch, err := b.Carrier.Events(ctx, after+1_000_000, wait)
				if err != nil || wait < 10*time.Second {
					return b.Carrier.Events(ctx, after, 0)
				}
				return batch, err
			}
		}},
		{"calls its feed the same whatever it forgot", forgetting, func(b *broken, _ *carriertest.Network) {
			b.news = func(ctx context.Context, after int64, wait time.Duration) (carrier.Batch, error) {
				batch, err := b.Carrier.Events(ctx, after, wait)
				batch.Feed = "feed"
				return batch, err
			}
		}},
		{"names its feed anew over a restart", restart, func(b *broken, n *carriertest.Network) {
			begin, times := n.Start, 0
			n.Start = func(forgetful bool) { begin(forgetful); times++ }
			b.news = func(ctx context.Context, after int64, wait time.Duration) (carrier.Batch, error) {
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
				t.Errorf("%q does not catch a carrier that %s", m.caughtBy, m.name)
			}
			t.Logf("caught: %s", strings.Join(faults, "; "))
		})
	}
}
