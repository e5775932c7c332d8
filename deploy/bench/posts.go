package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/deploy/bench/internal/figure"
	"ringfence.dev/deploy/e2e/rig"
)

// goalShare is the goal at goalClients, in percent of the limit.
const (
	goalClients = 32
	goalShare   = 50
)

// serial numbers everything that the bench writes, so that no two numbers called are the same.
var serial atomic.Int64

// posts prints POST /v1/calls per second for some numbers of clients, each beside the bare loops of as many goroutines before and
// after it. The calls are scheduled a day ahead, so nothing is dialled.
func posts(ctx context.Context, b *bench) error {
	w, err := b.stack.NewWorkspace(ctx, "bench posts", "10000000")
	if err != nil {
		return err
	}
	db, err := pgx.Connect(ctx, b.db)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	post := func(ctx context.Context, _ int) error { return place(ctx, w, serial.Add(1), tomorrow()) }
	if _, err := closedLoop(ctx, goalClients, time.Second, post); err != nil { // the first second makes connections and statements
		return err
	}
	if err := b.drained(ctx, db); err != nil {
		return err
	}
	fmt.Printf("  %-9s%-40s%-34s%s\n", "clients", "POST /v1/calls", fmt.Sprintf("the bare loop: %d commits each", expectedCommits), "share")
	for text := range strings.SplitSeq(b.clients, ",") {
		clients, err := strconv.Atoi(text)
		if err != nil || clients < 1 {
			return fmt.Errorf("-clients: %q is no number of clients", text)
		}
		if err := b.level(ctx, db, clients, post); err != nil {
			return err
		}
	}
	return nil
}

// level measures one number of clients: loop, POSTs, loop.
func (b *bench) level(ctx context.Context, db *pgx.Conn, clients int, post func(context.Context, int) error) error {
	before, err := b.bareLoops(ctx, db, clients)
	if err != nil {
		return err
	}
	used := b.cpu()
	got, err := closedLoop(ctx, clients, b.each, post)
	if err != nil {
		return err
	}
	ended := time.Now()
	if err := b.drained(ctx, db); err != nil {
		return err
	}
	drained, used := time.Since(ended), b.cpu().less(used)
	after, err := b.bareLoops(ctx, db, clients)
	if err != nil {
		return err
	}
	all, awaited := (before.all+after.all)/2, (before.awaited+after.awaited)/2
	share := 100 * got.perSecond / all
	verdict := ""
	if clients == goalClients {
		verdict = fmt.Sprintf("  goal %d %%: met", goalShare)
		if share < goalShare {
			verdict = fmt.Sprintf("  goal %d %%: MISSED", goalShare)
		}
	}
	fmt.Printf("  %-9d%-40s%-34s%.1f %%%s\n", clients, fmt.Sprintf("%.0f /s %s", got.perSecond, figure.Spread(got.took)),
		fmt.Sprintf("%.0f /s (%.0f, %.0f)", all, before.all, after.all), share, verdict)
	fmt.Printf("  %-9s%-40s%-34s%.1f %%\n", "", fmt.Sprintf("drained %.1f s later", drained.Seconds()),
		fmt.Sprintf("the %d awaited: %.0f /s", awaitedCommits, awaited), 100*got.perSecond/awaited)
	if line := used.line("POST", len(got.took)); line != "" {
		fmt.Printf("  %-9s%s\n  %-9s%s\n", "", line, "", before.used.line("turn of the bare loop", before.times))
	}
	return nil
}

// limits are the rates of the bare loop: with all commits of a POST, and with those alone that it awaits; used and times are what the first
// of the two cost and how often it ran.
type limits struct {
	all, awaited float64
	used         cpuTime
	times        int
}

// bareLoops measures the limits with tables that begin empty.
func (b *bench) bareLoops(ctx context.Context, db *pgx.Conn, clients int) (found limits, err error) {
	for _, awaitedOnly := range []bool{false, true} {
		if err := makeCopies(ctx, db, clients); err != nil {
			return found, err
		}
		loops := make([]*loop, clients)
		for i := range loops {
			if loops[i], err = newLoop(ctx, b.db, i, awaitedOnly); err != nil {
				return found, err
			}
			defer loops[i].close()
		}
		used := b.cpu()
		got, err := closedLoop(ctx, clients, b.each/4, func(ctx context.Context, client int) error {
			return loops[client].once(ctx, serial.Add(1))
		})
		if err != nil {
			return found, err
		}
		if awaitedOnly {
			found.awaited = got.perSecond
		} else {
			found.all, found.used, found.times = got.perSecond, b.cpu().less(used), len(got.took)
		}
		for _, l := range loops {
			l.close()
		}
	}
	_, err = db.Exec(ctx, "DROP SCHEMA bench CASCADE; CHECKPOINT") // each measurement pays for its own pages
	return found, err
}

const pipelineLeft = `
SELECT (SELECT count(*) FROM calls.outbox)
     + (SELECT count(*) FROM calls.call_requests) - (SELECT count(*) FROM dialer.dial_queue)
     + (SELECT count(*) FROM billing_wallet.holds WHERE state = 'held' AND confirmed_at IS NULL)`

// drained waits until every request has reached the dialer and the wallet.
func (b *bench) drained(ctx context.Context, db *pgx.Conn) error {
	return rig.Until(ctx, 5*time.Minute, "what was posted reaches the dialer and the wallet", func() (bool, error) {
		var left int64
		err := db.QueryRow(ctx, pipelineLeft).Scan(&left)
		return left == 0, err
	})
}

// due posts calls that are due at once, with simulated time at zero, and waits until the last one has ended.
func due(ctx context.Context, b *bench) error {
	w, err := b.stack.NewWorkspace(ctx, "bench due", "10000000")
	if err != nil {
		return err
	}
	db, err := pgx.Connect(ctx, b.db)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	began := time.Now()
	got, err := closedLoop(ctx, goalClients, b.each, func(ctx context.Context, _ int) error { return place(ctx, w, serial.Add(1), "") })
	if err != nil {
		return err
	}
	posted := time.Now()
	err = rig.Until(ctx, 10*time.Minute, "every call has ended", func() (bool, error) {
		var open bool
		err := db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM calls.call_requests WHERE workspace_id = $1 AND status IN ('queued', 'dialing'))`, w.ID).Scan(&open)
		return !open, err
	})
	if err != nil {
		return err
	}
	fmt.Printf("  POST /v1/calls           %8.0f /s   %s; %d clients, no goal\n", got.perSecond, figure.Spread(got.took), goalClients)
	fmt.Printf("  calls dialled and ended  %8.0f /s   the last one %.1f s after the last POST\n",
		float64(len(got.took))/time.Since(began).Seconds(), time.Since(posted).Seconds())
	return nil
}

// measured is what a closed loop found.
type measured struct {
	perSecond float64
	took      []time.Duration
}

// closedLoop lets every client do op again and again for the given time. The first fault of any client is the loop's.
func closedLoop(ctx context.Context, clients int, long time.Duration, op func(ctx context.Context, client int) error) (got measured, err error) {
	var (
		wg sync.WaitGroup
		mu sync.Mutex
	)
	began := time.Now()
	for client := range clients {
		wg.Go(func() {
			var mine []time.Duration
			var failed error
			for time.Since(began) < long && failed == nil {
				at := time.Now()
				failed = op(ctx, client)
				mine = append(mine, time.Since(at))
			}
			mu.Lock()
			defer mu.Unlock()
			got.took = append(got.took, mine...)
			if failed != nil {
				err = failed
			}
		})
	}
	wg.Wait()
	got.perSecond = float64(len(got.took)) / time.Since(began).Seconds()
	return got, err
}
