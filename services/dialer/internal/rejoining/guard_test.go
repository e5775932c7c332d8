package rejoining

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestGuard_HoldsWhileTheDatabaseMayBeAnother: each row is what the database says of itself, second by second, and whether anything is dialled after each.
func TestGuard_HoldsWhileTheDatabaseMayBeAnother(t *testing.T) {
	t.Parallel()
	away, never := errors.New("connection refused"), &pgconn.PgError{Code: "42501"}
	for _, tt := range []struct {
		name string
		says []any
		held []bool
		// awaited counts how often what was told was gone through, a second and a half each.
		awaited int
	}{
		{"the same all the time", []any{"00000001", "00000001", "00000001"}, []bool{false, false, false}, 0},
		{"away, and the same again", []any{"00000001", away, away, "00000001"}, []bool{false, true, true, false}, 0},
		{"away, and another", []any{"00000001", away, "00000002", "00000002", "00000002"}, []bool{false, true, true, true, false}, 1},
		{"another at once", []any{"00000001", "00000002", "00000002", "00000002"}, []bool{false, true, true, false}, 1},
		{"away from the beginning", []any{away, "00000001"}, []bool{true, false}, 0},
		{"it never tells", []any{never, "00000002"}, []bool{false, false}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begun, awaited := time.Now(), 0
				g := &Guard{
					timeline: func(context.Context) (string, error) {
						switch said := tt.says[min(int(time.Since(begun)/look), len(tt.says)-1)].(type) {
						case error:
							return "", said
						default:
							return said.(string), nil
						}
					},
					await: func(context.Context) error {
						awaited++
						time.Sleep(look + look/2)
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
