package rejoining

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/services/dialer/internal/store/past"
)

const (
	// look is how often the database's mark is looked at.
	look = time.Second
	// patience is how long its answer may take: a busy database is no other one.
	patience = 3 * time.Second
	// moves is how often the mark is moved on.
	moves = 30 * time.Second
	// stale is how old the last good look may be while something is dialled. Less than Gather: whoever was stopped, or cut off, dials nothing any more when another goes through a new server.
	stale = look + patience
)

// Guard keeps law 1 while a process runs: behind its back the database may become another, a standby that had not heard everything or a restored one, or another process may have
// found it older than what was told. Its mark does not stand then, and nothing is dialled until it does. A database that was away may have been set back on the timeline that it had:
// the newest facts are looked at before its mark is moved on, or anything dialled. What this process has dialled itself, the database is told first: no fact may have told of it.
type Guard struct {
	look  func(context.Context) (past.Mark, error)
	move  func(context.Context) error
	await func(context.Context) error
	lapse func()
	own   own
	held  atomic.Bool
	// seen is when the last good look began; nil: before the first, or there are none.
	seen atomic.Pointer[time.Time]
}

// NewGuard watches the database of the store. lapse is called when a hold begins: what was permitted before is asked about anew.
func NewGuard(cfg kafka.Config, st *past.Store, lapse func()) *Guard {
	g := &Guard{look: st.Mark, move: st.MoveMark, lapse: lapse}
	g.await = func(ctx context.Context) error {
		return await(ctx, cfg, st, Gather, func(ctx context.Context) error { return settleOwn(ctx, st, g.own.recent()) })
	}
	return g
}

// Held says that nothing may be dialled just now: the database may be another, or this process has not looked for too long to know.
func (g *Guard) Held() bool {
	seen := g.seen.Load()
	return g.held.Load() || seen != nil && time.Since(*seen) > stale
}

func (g *Guard) hold() {
	if !g.held.Swap(true) {
		g.lapse()
	}
}

// Run looks once a second until ctx ends. While the database does not answer, it may be about to become another.
func (g *Guard) Run(ctx context.Context) error {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	on := ""
	for moved := time.Now(); ctx.Err() == nil; {
		begun := time.Now()
		asking, cancel := context.WithTimeout(ctx, patience)
		mark, err := g.look(asking)
		if err == nil && mark.Stands() && !g.Held() && time.Since(moved) >= moves {
			moved, err = time.Now(), g.move(asking)
		}
		cancel()
		switch {
		case unheardOf(err):
			slog.WarnContext(ctx, "the database does not tell its timeline: when it fails over, stop every dialer before and start it after", "error", err)
			g.seen.Store(nil)
			g.held.Store(false)
			return nil
		case err != nil:
			g.hold()
		case !mark.Stands() || g.Held() || on != "" && on != mark.Now: // another that somebody else has gone through does not know what this process dialled either
			g.hold()
			if !mark.Stands() || on != "" && on != mark.Now {
				slog.WarnContext(ctx, "the database is another than before (a failover, or a restore): nothing is dialled until it knows what was told", "timeline", mark.Now, "before", cmp.Or(on, mark.On))
			}
			if g.await(ctx) != nil {
				return nil // told to stop
			}
			g.letGo(ctx, mark.Now)
			on = mark.Now
		default:
			on = mark.Now
			g.seen.Store(&begun)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	return nil
}

// letGo ends a hold behind which the database stands, on the timeline that it had before.
func (g *Guard) letGo(ctx context.Context, on string) {
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begun := time.Now()
	if mark, err := g.look(asking); err == nil && mark.Stands() && mark.Now == on {
		g.seen.Store(&begun)
		g.held.Store(false)
	}
}

// unheardOf says that this database will never answer: no such function, or no right to it (classes 0A and 42).
func unheardOf(err error) bool {
	var fault *pgconn.PgError
	return errors.As(err, &fault) && (strings.HasPrefix(fault.Code, "0A") || strings.HasPrefix(fault.Code, "42"))
}
