package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"ringfence.dev/test/bench/internal/probe"
	"ringfence.dev/test/kit"
)

const (
	posters        = 16
	sampleRequests = 100
	// callsStuck limits the time without a new dial or a new end of a call. After this time, the
	// missing calls count as lost. It is longer than the lease of a claimed call request.
	callsStuck = 30 * time.Second
	// goalDialed is the lowest permitted rate of dials, in calls per second, if goalDue calls per
	// second become due.
	goalDialed = 400.0
	goalDue    = 500
)

// eventConsumers are the services that consume the events of the dialer. The dialer does not wait
// for these services.
var eventConsumers = []string{"calls", "billing-wallet", "webhook-dispatcher"}

// Dials measures three rates. At each rate, call requests become due at equal intervals. Dials
// reads the time of each dial from the carrier's log.
func Dials(ctx context.Context, h *CallStack) error {
	loop, err := h.newBare(ctx)
	if err != nil {
		return err
	}
	defer loop.close()
	most, err := loop.flatOut(ctx, h.Each/2)
	if err != nil {
		return err
	}
	fmt.Printf("  baseline dials, as fast as %d connections make them: %.0f /s\n", bareConns, most)
	for _, rate := range []int{10, 100, goalDue} {
		if err := h.measureDials(ctx, loop, rate, false); err != nil {
			return err
		}
	}
	return h.measureDials(ctx, loop, goalDue, true)
}

type dialResult struct {
	dialLog
	asked   int
	took    []time.Duration
	used    probe.Time
	results string
}

// measureDials measures and prints one rate. If alone is true, it stops the services that consume
// the dialer's events, as if they ran on another machine.
func (h *CallStack) measureDials(ctx context.Context, loop *bareDials, rate int, alone bool) error {
	got, err := h.postDueCalls(ctx, rate, alone)
	if err != nil {
		return err
	}
	beside, err := loop.runEvenly(ctx, rate, h.Each/2)
	if err != nil {
		return err
	}
	who := "all services running"
	if alone {
		who = "calls, billing-wallet and webhook-dispatcher stopped"
	}
	fmt.Printf("  %d /s, %s\n", rate, who)
	fmt.Printf("    due → originate    %s; %d due, %.0f /s dialed, %d missing, %d twice (%s)\n",
		probe.Spread(got.took), got.asked, got.perSecond(), got.missing, got.twice, got.results)
	if rate == goalDue && !alone {
		fmt.Printf("    dialed a second    %.0f   %s\n", got.perSecond(), probe.AtLeast(got.perSecond(), goalDialed, " /s"))
	}
	if len(got.took) > 0 && len(beside) > 0 {
		of := func(q float64) float64 {
			return float64(probe.Quantile(got.took, q)) / float64(probe.Quantile(beside, q))
		}
		fmt.Printf("    a baseline dial    %s; the dialer takes %.1f x of it at p50, %.1f x at p99\n", probe.Spread(beside),
			of(0.5), of(0.99))
	}
	if line := got.used.Line("call", len(got.took)); line != "" {
		fmt.Printf("    %s, to the end of the last call\n", line)
	}
	return nil
}

// postDueCalls posts the call requests of one measurement. It starts early enough that all call
// requests are queued before the first one is due.
func (h *CallStack) postDueCalls(ctx context.Context, rate int, alone bool) (got dialResult, err error) {
	// four workspaces, so that none reaches its limit of 500 calls per second
	workspaces, err := h.workspaces(ctx, "dials", 4)
	if err != nil {
		return got, err
	}
	lead, err := h.estimateLead(ctx, workspaces, int(h.Each.Seconds()*float64(rate)))
	if err != nil {
		return got, err
	}
	numbers := make([]string, int(h.Each.Seconds()*float64(rate)))
	due := make(map[string]time.Time, len(numbers))
	start, apart := time.Now().Add(lead).Truncate(time.Second).Add(time.Second), time.Second/time.Duration(rate)
	for n := range numbers {
		numbers[n] = h.number()
		due[numbers[n]] = start.Add(time.Duration(n) * apart)
	}
	err = forEach(ctx, posters, numbers, func(ctx context.Context, n int, to string) error {
		return h.place(ctx, workspaces[n%len(workspaces)], to, due[to])
	})
	if err != nil {
		return got, err
	}
	if err := h.queued(ctx, workspaces, len(numbers)); err != nil {
		return got, err
	}
	if left := time.Until(start); left < 0 {
		return got, fmt.Errorf("the machine was too slow: the last request was queued %s after the first was due", -left)
	}
	if _, err := h.log.since(ctx); err != nil {
		return got, err
	}
	goOn, err := h.halt(alone)
	if err != nil {
		return got, err
	}
	before, err := h.Meter.Used(ctx)
	if err != nil {
		return got, errors.Join(err, goOn())
	}
	tally, err := h.scrape(ctx, dialer)
	if err != nil {
		return got, errors.Join(err, goOn())
	}
	got, err = h.watchDials(ctx, numbers, due)
	if err := errors.Join(err, goOn()); err != nil {
		return got, err
	}
	if err := h.awaitEnded(ctx, workspaces, callsStuck); err != nil {
		return got, err
	}
	used, err := h.Meter.Used(ctx)
	if err != nil {
		return got, err
	}
	now, err := h.scrape(ctx, dialer)
	got.used, got.results = used.Less(before), attemptResults(tally, now)
	return got, err
}

// estimateLead estimates the longest time that n POST requests take. It measures a few requests
// that are scheduled a day ahead.
func (h *CallStack) estimateLead(ctx context.Context, workspaces []*kit.Workspace, n int) (time.Duration, error) {
	began, tomorrow := time.Now(), time.Now().Add(24*time.Hour)
	err := forEach(ctx, posters, make([]struct{}, sampleRequests), func(ctx context.Context, i int, _ struct{}) error {
		return h.place(ctx, workspaces[i%len(workspaces)], h.number(), tomorrow)
	})
	return 5*time.Second + 2*time.Since(began)*time.Duration(n)/sampleRequests, err
}

const queuedAhead = `SELECT count(*) FROM dialer.dial_queue WHERE workspace_id = ANY ($1::uuid[])`

func (h *CallStack) queued(ctx context.Context, workspaces []*kit.Workspace, n int) error {
	return kit.Until(ctx, time.Minute, "the dialer's queue contains all posted call requests", func() (bool, error) {
		var there int
		err := h.db.QueryRow(ctx, queuedAhead, ids(workspaces)).Scan(&there)
		return there == n+sampleRequests, err
	})
}

// watchDials reads the carrier's log until every number was dialed, or until no new dial appears.
func (h *CallStack) watchDials(ctx context.Context, numbers []string, due map[string]time.Time) (got dialResult, err error) {
	var entries []entry
	last, moved := due[numbers[len(numbers)-1]], time.Now()
	for {
		more, err := h.log.since(ctx)
		if err != nil {
			return got, err
		}
		if entries = append(entries, more...); len(more) > 0 {
			moved = time.Now()
		}
		if got.dialLog = countDials(entries, numbers); got.missing == 0 || time.Since(last) > 0 && time.Since(moved) > callsStuck {
			break
		}
		if err := callPause(ctx, time.Second); err != nil {
			return got, err
		}
	}
	got.asked = len(numbers)
	for to, at := range got.dialedAt {
		got.took = append(got.took, at.Sub(due[to]))
	}
	return got, nil
}

// attemptResults compares two readings of the dialer's metrics. For each result of an attempt, it
// returns the number of attempts between the readings.
func attemptResults(before, after map[string]float64) string {
	const name = `ringfence_dialer_attempts_total{result="`
	var parts []string
	for _, result := range []string{"dialed", "put_back", "lost", "fault", "gate_silent", "refused", "unknown", "blocked", "rescheduled", "failed"} {
		if n := after[name+result+`"}`] - before[name+result+`"}`]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %.0f", result, n))
		}
	}
	return "attempts: " + strings.Join(parts, ", ")
}

func (h *CallStack) halt(alone bool) (goOn func() error, err error) {
	if !alone {
		return func() error { return nil }, nil
	}
	var stopped []int
	goOn = func() (err error) {
		for _, pid := range stopped {
			err = errors.Join(err, syscall.Kill(pid, syscall.SIGCONT))
		}
		return err
	}
	running := h.Stack.Processes()
	for _, name := range eventConsumers {
		for _, pid := range running[name] {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				return nil, errors.Join(fmt.Errorf("stop %s: %w", name, err), goOn())
			}
			stopped = append(stopped, pid)
		}
	}
	return goOn, nil
}
