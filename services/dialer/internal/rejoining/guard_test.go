package rejoining

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"ringfence.dev/services/dialer/internal/request"
	"ringfence.dev/services/dialer/internal/store/past"
)

// TestGuard_HoldsWhileTheDatabaseMayBeAnother: each row is what the database says of itself, second by second, and whether anything is dialled after each.
func TestGuard_HoldsWhileTheDatabaseMayBeAnother(t *testing.T) {
	t.Parallel()
	away, never, until := errors.New("connection refused"), &pgconn.PgError{Code: "42501"}, time.Now()
	same, another, doubted := past.Mark{Until: &until, On: "00000001", Now: "00000001"}, past.Mark{Until: &until, On: "00000001", Now: "00000002"}, past.Mark{Until: &until, Now: "00000001"}
	next := past.Mark{Until: &until, On: "00000002", Now: "00000002"}
	for _, tt := range []struct {
		name string
		says []any
		held []bool
		// awaited counts how often what was told was gone through, a second and a half each.
		awaited int
	}{
		{"the same all the time", []any{same, same, same}, []bool{false, false, false}, 0},
		{"away, and the same again", []any{same, away, away, same}, []bool{false, true, true, true, true, false}, 1},
		{"away, and another", []any{same, away, another, another, same}, []bool{false, true, true, true, false}, 1},
		{"another at once", []any{same, another, another, same}, []bool{false, true, true, false}, 1},
		{"another since before we began", []any{another, another, same}, []bool{true, true, false}, 1},
		{"found to be older by somebody else", []any{same, doubted, doubted, same}, []bool{false, true, true, false}, 1},
		{"another, and somebody else was quicker", []any{same, away, same}, []bool{false, true, true, true, false}, 1},
		{"away from the beginning", []any{away, same}, []bool{true, true, true, false}, 1},
		{"nobody has said so yet", []any{past.Mark{Now: "00000001"}}, []bool{false}, 0},
		{"another that somebody else has gone through", []any{same, next, next, next}, []bool{false, true, true, false}, 1},
		{"it never tells", []any{never, another}, []bool{false, false}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begun, awaited, settled, on := time.Now(), 0, false, ""
				g := &Guard{
					lapse: func() {},
					look: func(context.Context) (past.Mark, error) {
						if settled {
							return past.Mark{Until: &until, On: on, Now: on}, nil
						}
						switch said := tt.says[min(int(time.Since(begun)/look), len(tt.says)-1)].(type) {
						case error:
							return past.Mark{}, said
						default:
							on = said.(past.Mark).Now
							return said.(past.Mark), nil
						}
					},
					move: func(context.Context) error {
						t.Error("the mark was moved on within seconds")
						return nil
					},
					await: func(context.Context) error {
						awaited++
						time.Sleep(look + look/2)
						settled = true
						return nil
					},
				}
				ctx, cancel := context.WithCancel(t.Context())
				go func() { _ = g.Run(ctx) }()
				for second, want := range tt.held {
					time.Sleep(time.Until(begun.Add(time.Duration(second)*look + look/4)))
					if got := g.Held(); got != want {
						t.Errorf("second %d: held is %v, want %v", second, got, want)
					}
				}
				cancel()
				synctest.Wait()
				if awaited != tt.awaited {
					t.Errorf("what was told was gone through %d times, want %d", awaited, tt.awaited)
				}
			})
		})
	}
}

// TestGuard_MovesTheMarkWhileItMayDial: every half minute, and not before what was away was looked at.
func TestGuard_MovesTheMarkWhileItMayDial(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		until, begun := time.Now(), time.Now()
		var away atomic.Bool
		var did []string
		note := func(what string) { did = append(did, fmt.Sprintf("%s %.0f", what, time.Since(begun).Seconds())) }
		g := &Guard{
			lapse: func() {},
			look: func(context.Context) (past.Mark, error) {
				if away.Load() {
					return past.Mark{}, errors.New("connection refused")
				}
				return past.Mark{Until: &until, On: "00000001", Now: "00000001"}, nil
			},
			move:  func(context.Context) error { note("moved"); return nil },
			await: func(context.Context) error { note("looked"); return nil },
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = g.Run(ctx) }()
		for _, step := range []struct {
			until time.Duration
			away  bool
		}{{55 * time.Second, false}, {70 * time.Second, true}, {95 * time.Second, false}} {
			synctest.Wait()
			away.Store(step.away)
			time.Sleep(time.Until(begun.Add(step.until + look/2)))
		}
		cancel()
		synctest.Wait()
		if want := []string{"moved 30", "looked 71", "moved 72"}; !slices.Equal(did, want) {
			t.Errorf("it did %q, want %q", did, want)
		}
	})
}

// TestGuard_WhoHasNotLookedForTooLongDialsNothing: a process that was stopped in its tracks, or whose look hangs, may wake up behind a failover that the others are through with. What was permitted
// before is asked about anew.
func TestGuard_WhoHasNotLookedForTooLongDialsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		until := time.Now()
		var lapses atomic.Int32
		var stopped atomic.Bool
		mark := past.Mark{Until: &until, On: "00000001", Now: "00000001"}
		g := &Guard{
			lapse: func() { lapses.Add(1) },
			look: func(context.Context) (past.Mark, error) {
				if stopped.Swap(false) {
					time.Sleep(10 * time.Second)
				}
				return mark, nil
			},
			await: func(context.Context) error { return nil },
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = g.Run(ctx) }()
		time.Sleep(look + look/2)
		stopped.Store(true)
		if g.Held() {
			t.Error("held half a second after a look")
		}
		time.Sleep(stale) // from a look and a half: the second look, at 2 s, is the one that hangs
		if !g.Held() {
			t.Errorf("held: g.Held() = false, want true; stale+look/2 = %s", stale+look/2)
		} else if stale >= Gather {
			t.Errorf("held: stale = %v, want less than %v; stale+look/2 = %s", stale, Gather, stale+look/2)
		}
		time.Sleep(10 * time.Second)
		if g.Held() {
			t.Error("held: g.Held() = true, want false")
		} else if lapses.Load() != 1 {
			t.Errorf("held: lapses = %v, want 1", lapses.Load())
		}
		cancel()
		synctest.Wait()
	})
}

// TestOwn_IsNotForgottenWhileNothingIsDialled: a hold may take as long as Kafka is away, and another server come after it.
func TestOwn_IsNotForgottenWhileNothingIsDialled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &Guard{}
		dial := func() { g.Dialling(request.Request{CallRequestID: uuid.New(), To: "+14155550101"}, uuid.New(), "") }
		dial()
		time.Sleep(remembered / 2)
		dial()
		time.Sleep(time.Hour)
		if got := len(g.own.recent()); got != 2 {
			t.Errorf("it knows %d of its dials an hour later, want both", got)
		}
		dial()
		if got := len(g.own.recent()); got != 1 {
			t.Errorf("it knows %d of its dials behind one more, want that one", got)
		}
	})
}
