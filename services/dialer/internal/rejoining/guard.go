package rejoining

import (
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
)

// Guard keeps law 1 while a process runs: behind its back the database may become another, a standby that had not heard everything or a restored one, or another process may have
// found it older than what was told. Its mark does not stand then, and nothing is dialled until it does. A database that was away may have been set back on the timeline that it had:
// the newest facts are looked at before its mark is moved on, or anything dialled. What this process has dialled itself, the database is told first: no fact may have told of it.
type Guard struct {
	look  func(context.Context) (past.Mark, error)
	move  func(context.Context) error
	await func(context.Context) error
	know  func(context.Context, []past.Told) error
	own   own
	held  atomic.Bool
}

// NewGuard watches the database of the store.
func NewGuard(cfg kafka.Config, st *past.Store) *Guard {
	return &Guard{
		look: st.Mark, move: st.MoveMark,
		await: func(ctx context.Context) error { return Await(ctx, cfg, st, Gather) },
		know:  func(ctx context.Context, dials []past.Told) error { return settleOwn(ctx, st, dials) },
	}
}

// Held says that nothing may be dialled just now.
func (g *Guard) Held() bool { return g.held.Load() }

// Run looks once a second until ctx ends. While the database does not answer, it may be about to become another.
func (g *Guard) Run(ctx context.Context) error {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for moved := time.Now(); ctx.Err() == nil; {
		asking, cancel := context.WithTimeout(ctx, patience)
		mark, err := g.look(asking)
		if err == nil && mark.Stands() && !g.Held() && time.Since(moved) >= moves {
			moved, err = time.Now(), g.move(asking)
		}
		cancel()
		switch {
		case unheardOf(err):
			slog.WarnContext(ctx, "the database does not tell its timeline: when it fails over, stop every dialer before and start it after", "error", err)
			g.held.Store(false)
			return nil
		case err != nil:
			g.held.Store(true)
		case !mark.Stands() || g.Held():
			g.held.Store(true)
			if !mark.Stands() {
				slog.WarnContext(ctx, "the database is another than before (a failover, or a restore): nothing is dialled until it knows what was told", "timeline", mark.Now, "before", mark.On)
			}
			if err := g.know(ctx, g.own.recent()); err != nil {
				slog.WarnContext(ctx, "nothing is dialled until what this process dialled is known", "error", err)
				break // until the next look
			}
			if g.await(ctx) != nil {
				return nil // told to stop
			}
			g.held.Store(false)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	return nil
}

// unheardOf says that this database will never answer: no such function, or no right to it (classes 0A and 42).
func unheardOf(err error) bool {
	var fault *pgconn.PgError
	return errors.As(err, &fault) && (strings.HasPrefix(fault.Code, "0A") || strings.HasPrefix(fault.Code, "42"))
}
