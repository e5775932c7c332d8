// Package reconcile compares wallets, transactions and holds with each other: by command, which
// prints every difference, and periodically in the service, which counts them. It repairs nothing.
// Package store has the comparisons.
package reconcile

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/service"
	"ringfence.dev/services/billing-wallet/internal/ledger"
	"ringfence.dev/services/billing-wallet/internal/store"
)

// progressInterval is the time between two progress lines.
const progressInterval = 5 * time.Second

// Walk compares every workspace, or one. Each has its own snapshot: one snapshot of all would
// prevent vacuum for a long time.
type Walk struct {
	Store *store.Store
	// Out gets a line for each difference and the count at the end, or one JSON object if
	// service.Scripted is true. Progress gets progress lines.
	Out, Progress io.Writer
	// Interval is the time between two progress lines; 0 is 5 s.
	Interval time.Duration
}

// Run compares all workspaces, or the workspace only if it is not the nil UUID. It returns an error
// if there are differences, or if not everything was compared. It returns store.ErrNoWallet if only
// is unknown.
func (w Walk) Run(ctx context.Context, only uuid.UUID) error {
	result := report{Differences: []ledger.Difference{}}
	ticks := time.NewTicker(cmp.Or(w.Interval, progressInterval))
	defer ticks.Stop()
	for id := only; ; {
		var err error
		if only == uuid.Nil {
			if id, err = w.Store.WorkspaceAfter(ctx, id); err != nil {
				return w.interrupted(ctx, result, err)
			}
			if id == uuid.Nil {
				break
			}
		}
		found, err := w.compare(ctx, id, func() {
			fmt.Fprintf(w.Progress, "so far: %s; comparing workspace %s\n", result, id)
		}, ticks.C)
		if err != nil {
			return w.interrupted(ctx, result, err)
		}
		result.add(found)
		if !service.Scripted(ctx) {
			for _, difference := range found {
				fmt.Fprintln(w.Out, difference)
			}
		}
		if only != uuid.Nil {
			break
		}
	}
	if err := w.print(ctx, "", result); err != nil {
		return err
	}
	if result.Count > 0 {
		return fmt.Errorf("reconciliation found %d differences", result.Count)
	}
	return nil
}

// compare compares one workspace and calls report at each tick.
func (w Walk) compare(ctx context.Context, id uuid.UUID, progress func(),
	ticks <-chan time.Time) (found []ledger.Difference, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		found, err = w.Store.Differences(ctx, id)
	}()
	for {
		select {
		case <-done:
			return found, err
		case <-ticks:
			progress()
		}
	}
}

// report is what was compared so far.
type report struct {
	Workspaces  int                 `json:"workspaces"`
	Differences []ledger.Difference `json:"differences"` // the first maxDifferences
	Count       int                 `json:"difference_count"`
	BrokenOff   bool                `json:"broken_off"`
}

// maxDifferences limits the differences in the JSON object.
const maxDifferences = 10_000

func (a *report) add(found []ledger.Difference) {
	a.Workspaces++
	a.Count += len(found)
	a.Differences = append(a.Differences, found[:min(len(found), maxDifferences-len(a.Differences))]...)
}

func (a report) String() string {
	return fmt.Sprintf("%d workspaces compared, %d differences", a.Workspaces, a.Count)
}

// print prints the result.
func (w Walk) print(ctx context.Context, prefix string, result report) error {
	if service.Scripted(ctx) {
		return json.NewEncoder(w.Out).Encode(result)
	}
	_, err := fmt.Fprintf(w.Out, "%s%s\n", prefix, result)
	return err
}

// interrupted prints the incomplete result. It hides that ctx ended: libs/service treats that as
// success, and a caller could conclude that there are no differences.
func (w Walk) interrupted(ctx context.Context, result report, err error) error {
	result.BrokenOff = true
	_ = w.print(ctx, "broken off: ", result) // the incomplete result is printed in any case
	if ctx.Err() != nil {
		return errors.New("reconciling was interrupted: run it again")
	}
	return fmt.Errorf("reconciling was broken off: %w", err)
}
