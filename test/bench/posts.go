package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/test/bench/internal/probe"
	"ringfence.dev/test/kit"
)

// goalShare is the goal in percent of the baseline loop's rate, for goalClients clients. The
// baseline loop makes the commits of a POST without the product (see package probe). Its statements
// and tables are frozen (frozen.go), so a change of the product does not change the goal.
const (
	goalClients = 32
	goalShare   = 55
)

// serial is the last number that the bench has used for a phone number or an invented key. No
// number is used twice.
var serial atomic.Int64

// measurePosts prints POST /v1/calls per second for several numbers of clients, and runs the
// baseline loop before and after each measurement. The calls are scheduled for the next day, so
// that they are not dialed.
func measurePosts(ctx context.Context, b *bench) error {
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
	// The first second opens connections and prepares statements, and does not count.
	if _, err := closedLoop(ctx, goalClients, time.Second, post); err != nil {
		return err
	}
	if err := b.awaitDrained(ctx, db); err != nil {
		return err
	}
	fmt.Printf(
		"  %-9s%-40s%-34s%s\n",
		"clients",
		"POST /v1/calls",
		fmt.Sprintf("the baseline loop: %d commits each", expectedCommits),
		"share",
	)
	for text := range strings.SplitSeq(b.clients, ",") {
		clients, err := strconv.Atoi(text)
		if err != nil || clients < 1 {
			return fmt.Errorf("-clients: %q is not a number of clients", text)
		}
		if err := b.level(ctx, db, clients, post); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) level(ctx context.Context, db *pgx.Conn, clients int, post func(context.Context, int) error) error {
	before, err := b.bareLoops(ctx, db, clients)
	if err != nil {
		return err
	}
	used, err := b.meter.Used(ctx)
	if err != nil {
		return err
	}
	got, err := closedLoop(ctx, clients, b.each, post)
	if err != nil {
		return err
	}
	ended := time.Now()
	if err := b.awaitDrained(ctx, db); err != nil {
		return err
	}
	drained := time.Since(ended)
	now, err := b.meter.Used(ctx)
	if err != nil {
		return err
	}
	used = now.Less(used)
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
	fmt.Printf("  %-9d%-40s%-34s%.1f %%%s\n", clients, fmt.Sprintf("%.0f /s %s", got.perSecond, probe.Spread(got.took)),
		fmt.Sprintf("%.0f /s (%.0f, %.0f)", all, before.all, after.all), share, verdict)
	fmt.Printf("  %-9s%-40s%-34s%.1f %%\n", "", fmt.Sprintf("drained %.1f s later", drained.Seconds()),
		fmt.Sprintf("the %d awaited: %.0f /s", awaitedCommits, awaited), 100*got.perSecond/awaited)
	if line := used.Line("POST", len(got.took)); line != "" {
		fmt.Printf("  %-9s%s\n  %-9s%s\n", "", line, "", before.used.Line("turn of the baseline loop", before.times))
	}
	return nil
}

// baselineRates contains the rates of two baseline loops: with all commits of a POST, and with only
// the commits before the response. used and times are the CPU time and the operations of the first
// loop.
type baselineRates struct {
	all, awaited float64
	used         probe.Time
	times        int
}

func (b *bench) bareLoops(ctx context.Context, db *pgx.Conn, clients int) (found baselineRates, err error) {
	copies := probe.Copies{DB: db, Schema: "bench"}
	for _, awaitedOnly := range []bool{false, true} {
		if err := makeCopies(ctx, copies, clients); err != nil {
			return found, err
		}
		commits := sixCommits()
		if awaitedOnly {
			commits = slices.DeleteFunc(commits, func(c probe.Commit) bool { return !c.Awaited })
		}
		loops := make([]*probe.Loop, clients)
		for i := range loops {
			if loops[i], err = copies.NewLoop(ctx, b.db, i, commits); err != nil {
				return found, err
			}
			defer loops[i].Close()
		}
		used, err := b.meter.Used(ctx)
		if err != nil {
			return found, err
		}
		got, err := closedLoop(ctx, clients, b.each/4, func(ctx context.Context, client int) error {
			n := serial.Add(1)
			return loops[client].Once(ctx, probe.Turn{Request: probe.NewID(), N: n, Number: phoneNumber(n)})
		})
		if err != nil {
			return found, err
		}
		if awaitedOnly {
			found.awaited = got.perSecond
		} else {
			now, err := b.meter.Used(ctx)
			if err != nil {
				return found, err
			}
			found.all, found.used, found.times = got.perSecond, now.Less(used), len(got.took)
		}
		for _, l := range loops {
			l.Close()
		}
	}
	return found, copies.Drop(ctx) // the next measurement needs empty tables
}

// turnCPU returns the CPU time of the commits in sixCommits, or 0 if it cannot be measured.
func (b *bench) turnCPU(ctx context.Context) (time.Duration, error) {
	db, err := pgx.Connect(ctx, b.db)
	if err != nil {
		return 0, err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	found, err := b.bareLoops(ctx, db, goalClients)
	return found.used.Sum() / time.Duration(max(1, found.times)), err
}

const pipelineLeft = `
SELECT (SELECT count(*) FROM calls.outbox)
     + (SELECT count(*) FROM calls.call_requests) - (SELECT count(*) FROM dialer.dial_queue)
     + (SELECT count(*) FROM billing_wallet.holds WHERE state = 'held' AND confirmed_at IS NULL)`

// awaitDrained waits until every call request has reached the dialer and billing-wallet.
func (b *bench) awaitDrained(ctx context.Context, db *pgx.Conn) error {
	return kit.Until(ctx, 5*time.Minute, "what was posted reaches the dialer and the wallet", func() (bool, error) {
		var left int64
		err := db.QueryRow(ctx, pipelineLeft).Scan(&left)
		return left == 0, err
	})
}

type loopResult struct {
	perSecond float64
	took      []time.Duration
}

// closedLoop lets every client call op again and again for the given time. A client makes its next
// call when the last one has returned. If a client fails, closedLoop returns its error.
func closedLoop(ctx context.Context, clients int, long time.Duration, op func(ctx context.Context, client int) error) (got loopResult, err error) {
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
