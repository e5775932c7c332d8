package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/test/bench/internal/probe"
	"ringfence.dev/test/kit"
)

// goalTurns limits the CPU time of a call, from POST to the terminal webhook. It is a multiple of
// the CPU time of the commits in sixCommits.
const goalTurns = 7.0

// webhookTimeout is the time after which a missing webhook of a call counts as lost.
const webhookTimeout = time.Minute

// Pipeline measures several levels. A level is a constant number of calls in progress: the next
// call replaces a finished call, so the measured rate is sustained. The first calls of a level do
// not count.
func Pipeline(ctx context.Context, h *CallStack) error {
	best, at := 0.0, 0
	turn, err := h.TurnCPU(ctx)
	if err != nil {
		return err
	}
	for underWay := 16; underWay <= 1024; underWay *= 4 {
		rate, err := h.measureLevel(ctx, underWay, turn)
		if err != nil {
			return err
		}
		if rate > best {
			best, at = rate, underWay
		}
	}
	fmt.Printf("  sustained          %8.0f calls a second, with %d under way\n", best, at)
	return nil
}

type levelResult struct {
	mu sync.Mutex
	// numbers contains the phone numbers whose POST was accepted. unanswered contains the phone
	// numbers whose POST returned errBusy.
	numbers, unanswered []string
	// all is the number of calls whose webhook arrived. counted and took include only the calls
	// whose webhook arrived while counting was true.
	all, counted int
	counting     bool
	took         []time.Duration
	used         probe.Time
	meant        time.Duration
}

func (k *levelResult) land(took time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all++
	if k.counting {
		k.counted++
		k.took = append(k.took, took)
	}
}

func (k *levelResult) asked(which *[]string, to string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	*which = append(*which, to)
}

func (k *levelResult) landed() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.all
}

func (k *levelResult) count(on bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.counting = on
}

// measureLevel measures the call rate while underWay calls are in progress. turn is the CPU time of
// the commits in sixCommits, or 0 if it is unknown.
func (h *CallStack) measureLevel(ctx context.Context, underWay int, turn time.Duration) (perSecond float64, err error) {
	workspaces, err := h.workspaces(ctx, "pipeline", 4)
	if err != nil {
		return 0, err
	}
	for _, w := range workspaces {
		if _, err := w.Subscribe(ctx, h.Hooks); err != nil {
			return 0, err
		}
	}
	if _, err := h.log.since(ctx); err != nil {
		return 0, err
	}
	var k levelResult
	if err := h.runLevel(ctx, &k, workspaces, underWay); err != nil {
		return 0, err
	}
	if err := h.awaitEnded(ctx, workspaces, callsStuck); err != nil {
		return 0, err
	}
	entries, err := h.log.since(ctx)
	if err != nil {
		return 0, err
	}
	dials, hooks := countDials(entries, k.numbers), h.Landing.takeResult(k.numbers)
	perSecond = float64(k.counted) / k.meant.Seconds()
	fmt.Printf("  %4d under way      %8.0f /s   POST → terminal webhook %s\n", underWay, perSecond, probe.Spread(k.took))
	fmt.Printf("    of %d calls: %d not dialed, %d dialed twice, %d without a terminal event, %d with two, "+
		"%d badly signed; %d POSTs answered 503 and made again\n",
		len(k.numbers), dials.missing, dials.twice, hooks.missing, hooks.duplicates, hooks.badSignatures, h.refused.Swap(0))
	if err := h.printOutcomes(ctx, workspaces, slices.Concat(dials.lost, hooks.lost)); err != nil {
		return 0, err
	}
	if n := len(k.unanswered); n > 0 {
		all := countDials(entries, k.unanswered)
		h.Landing.takeResult(k.unanswered)
		fmt.Printf(
			"    not included: %d POST requests with 503 for a minute or no response, "+
				"of which %d were dialed anyway, %d twice\n",
			n,
			n-all.missing,
			all.twice,
		)
	}
	if line := k.used.Line("call", k.counted); line != "" {
		fmt.Printf("    %s\n", line)
		if turn > 0 {
			turns := float64(k.used.Sum()) / float64(k.counted) / float64(turn)
			fmt.Printf("    turns of the six-commit loop (%.2f ms CPU): %.1f   %s\n", probe.MS(turn), turns,
				probe.AtMost(turns, goalTurns, ""))
		}
	}
	for _, w := range workspaces {
		if wrong, err := w.Differences(ctx); err != nil || len(wrong) > 0 {
			return 0, fmt.Errorf("the wallet differs from the ledger or the charges: %v %w", wrong, err)
		}
	}
	return perSecond, nil
}

// outcomesQuery selects the states of the call requests and calls of phone numbers. It reads the
// schemas of the service `calls` and of the dialer.
const outcomesQuery = `
SELECT r.status || coalesce(' ' || r.error_code, '') || coalesce(', in the dial queue ' || q.state || CASE WHEN q.claimed_by IS NULL THEN '' ELSE ' and claimed' END, ', not in the dial queue')
	|| coalesce(', call ' || c.status, ', no call') || ' (' || count(*) || ', accepted ' || round(extract(epoch FROM now() - min(r.queued_at))) || ' s ago, changed '
	|| round(extract(epoch FROM now() - max(coalesce(r.completed_at, r.queued_at)))) || ' s ago)'
FROM calls.call_requests r LEFT JOIN dialer.dial_queue q ON q.call_request_id = r.id LEFT JOIN calls.calls c ON c.call_request_id = r.id
WHERE r.workspace_id = ANY ($1::uuid[]) AND r.to_e164 = ANY ($2::text[])
GROUP BY r.status, r.error_code, q.state, q.claimed_by IS NULL, c.status`

// printOutcomes prints the states of the calls that were not dialed or have no terminal event. A
// call request that ends without a call has no terminal event.
func (h *CallStack) printOutcomes(ctx context.Context, workspaces []*kit.Workspace, numbers []string) error {
	if len(numbers) == 0 {
		return nil
	}
	rows, err := h.db.Query(ctx, outcomesQuery, ids(workspaces), numbers)
	if err != nil {
		return err
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, fate := range all {
		fmt.Printf("    of those: %s\n", fate)
	}
	return err
}

func (h *CallStack) runLevel(ctx context.Context, k *levelResult, workspaces []*kit.Workspace, underWay int) error {
	var (
		wg     sync.WaitGroup
		over   atomic.Bool
		faults = make([]error, underWay)
	)
	for n := range underWay {
		wg.Go(func() {
			for !over.Load() && faults[n] == nil {
				faults[n] = h.oneCall(ctx, k, workspaces[n%len(workspaces)])
			}
		})
	}
	err := h.countFor(ctx, k, underWay)
	over.Store(true)
	wg.Wait()
	for _, fault := range faults {
		if fault != nil {
			return fault
		}
	}
	return err
}

// countFor waits until warmUpCalls calls have ended, but at most a minute. Then it counts the calls
// that end during one measurement.
func (h *CallStack) countFor(ctx context.Context, k *levelResult, warmUpCalls int) error {
	if kit.Until(ctx, webhookTimeout, "as many calls have ended as are under way",
		func() (bool, error) { return k.landed() >= warmUpCalls, nil }) != nil {
		fmt.Printf("    counted after a minute, in which %d of %d under way had ended\n", k.landed(), warmUpCalls)
	}
	before, err := h.Meter.Used(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	k.count(true)
	if err := callPause(ctx, h.Each); err != nil {
		return err
	}
	k.count(false)
	k.meant = time.Since(began)
	now, err := h.Meter.Used(ctx)
	k.used = now.Less(before)
	return err
}

// oneCall places one call and waits for its terminal webhook. A missing webhook is no error,
// because missing webhooks are counted at the end of the level. A POST without a response is no
// error.
func (h *CallStack) oneCall(ctx context.Context, k *levelResult, w *kit.Workspace) error {
	to := h.number()
	landed, posted := h.Landing.expect(to), time.Now()
	switch err := h.place(ctx, w, to, time.Time{}); {
	case err == nil:
		k.asked(&k.numbers, to)
	case errors.Is(err, errBusy):
		k.asked(&k.unanswered, to)
		return nil
	default:
		return err
	}
	select {
	case at := <-landed:
		k.land(at.Sub(posted))
	case <-time.After(webhookTimeout):
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
