package calling

import (
	"context"
	"fmt"
	"sync"
	"time"

	"ringfence.dev/deploy/bench/internal/cpu"
	"ringfence.dev/deploy/bench/internal/figure"
	"ringfence.dev/deploy/e2e/rig"
)

// settling is how long a level runs before it counts, and late how long a call may take before its webhook is called missing.
const (
	settling = 2 * time.Second
	late     = time.Minute
)

// Pipeline keeps some number of calls under way, each from its POST to its terminal webhook and then the next: what comes out is sustained, since
// nothing can pile up. More and more are kept until more of them give no more calls a second.
func Pipeline(ctx context.Context, h *House) error {
	best, at := 0.0, 0
	for underWay := 16; underWay <= 1024; underWay *= 4 {
		rate, err := h.keep(ctx, underWay)
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

// kept is what one level did while it counted.
type kept struct {
	mu      sync.Mutex
	numbers []string
	took    []time.Duration
	landed  int
	used    cpu.Time
	meant   time.Duration
}

// keep prints one level and answers its rate.
func (h *House) keep(ctx context.Context, underWay int) (perSecond float64, err error) {
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
	var k kept
	if err := h.turn(ctx, &k, workspaces, underWay); err != nil {
		return 0, err
	}
	if err := h.ended(ctx, workspaces, stuck); err != nil {
		return 0, err
	}
	entries, err := h.log.since(ctx)
	if err != nil {
		return 0, err
	}
	dials, hooks := count(entries, k.numbers), h.Landing.forget(k.numbers)
	perSecond = float64(k.landed) / k.meant.Seconds()
	fmt.Printf("  %4d under way      %8.0f /s   POST → terminal webhook %s\n", underWay, perSecond, figure.Spread(k.took))
	fmt.Printf("    of %d calls: %d not dialled, %d dialled twice, %d without a terminal event, %d with two, %d badly signed\n",
		len(k.numbers), dials.missing, dials.twice, hooks.missing, hooks.double, hooks.badly)
	if line := k.used.Line("call", k.landed); line != "" {
		fmt.Printf("    %s\n", line)
	}
	for _, w := range workspaces {
		if wrong, err := w.Differences(ctx); err != nil || len(wrong) > 0 {
			return 0, fmt.Errorf("the books do not agree: %v %w", wrong, err)
		}
	}
	return perSecond, nil
}

// turn keeps the calls under way for a measurement's time and a little before, and then lets the last of them end.
func (h *House) turn(ctx context.Context, k *kept, workspaces []*rig.Workspace, underWay int) error {
	var (
		wg     sync.WaitGroup
		faults = make([]error, underWay)
		began  = time.Now()
		until  = began.Add(settling + h.Each)
	)
	counting := func(at time.Time) bool { return at.After(began.Add(settling)) && at.Before(until) }
	for n := range underWay {
		wg.Go(func() {
			for time.Now().Before(until) && faults[n] == nil {
				faults[n] = h.oneCall(ctx, k, workspaces[n%len(workspaces)], counting)
			}
		})
	}
	if err := pause(ctx, settling); err != nil {
		return err
	}
	before := h.Meter.Used()
	if err := pause(ctx, time.Until(until)); err != nil {
		return err
	}
	used, meant := h.Meter.Used().Less(before), time.Since(began.Add(settling))
	wg.Wait()
	k.used, k.meant = used, meant
	for _, err := range faults {
		if err != nil {
			return err
		}
	}
	return nil
}

// oneCall makes one call and waits for its terminal webhook. One that does not come is found missing at the end.
func (h *House) oneCall(ctx context.Context, k *kept, w *rig.Workspace, counting func(time.Time) bool) error {
	to := h.number()
	landed, posted := h.Landing.expect(to), time.Now()
	k.mu.Lock()
	k.numbers = append(k.numbers, to)
	k.mu.Unlock()
	if _, err := w.Place(ctx, map[string]any{"to": to}); err != nil {
		return err
	}
	select {
	case at := <-landed:
		k.mu.Lock()
		defer k.mu.Unlock()
		if counting(at) {
			k.landed++
			k.took = append(k.took, at.Sub(posted))
		}
	case <-time.After(late):
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
