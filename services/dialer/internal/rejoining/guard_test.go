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

	"github.com/jackc/pgx/v5/pgconn"

	"ringfence.dev/services/dialer/internal/store/past"
)

// TestGuard_HoldsWhileTheDatabaseMayBeAnother: each row is what the database says of itself, second by second, and whether anything is dialled after each.
func TestGuard_HoldsWhileTheDatabaseMayBeAnother(t *testing.T) {
	t.Parallel()
	away, never, until := errors.New("connection refused"), &pgconn.PgError{Code: "42501"}, time.Now()
	same, another, doubted := past.Mark{Until: &until, On: "00000001", Now: "00000001"}, past.Mark{Until: &until, On: "00000001", Now: "00000002"}, past.Mark{Until: &until, Now: "00000001"}
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
		{"it never tells", []any{never, another}, []bool{false, false}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begun, awaited, settled := time.Now(), 0, false
				g := &Guard{
					know: func(context.Context, []past.Told) error { return nil },
					look: func(context.Context) (past.Mark, error) {
						if settled {
							return same, nil
						}
						switch said := tt.says[min(int(time.Since(begun)/look), len(tt.says)-1)].(type) {
						case error:
							return past.Mark{}, said
						default:
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
			know: func(context.Context, []past.Told) error { return nil },
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
