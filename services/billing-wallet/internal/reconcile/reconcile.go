// Package reconcile compares wallets, transactions and holds with each other. The command reconcile
// prints every difference. The service compares periodically and counts the differences. The
// package does not repair differences. Package store contains the comparisons.
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

// Walk compares all workspaces, or one workspace. It reads each workspace in a separate snapshot,
// because a single snapshot for all workspaces would prevent vacuum for a long time.
type Walk struct {
	Store *store.Store
	// Out receives a line for each difference, and at the end a line with the count. If
	// service.Scripted(ctx) is true, Out receives one JSON object and no lines. Progress receives
	// the progress lines.
	Out, Progress io.Writer
	// Interval is the time between two progress lines. If Interval is 0, 5 s are used.
	Interval time.Duration
}

// Run compares the workspace with the given id, or all workspaces if the id is uuid.Nil. It returns
// an error if it finds differences or if a comparison fails, and store.ErrNoWallet if the workspace
// is unknown.
func (w Walk) Run(ctx context.Context, only uuid.UUID) error {
	result := report{Differences: []ledger.Difference{}}
	ticks := time.NewTicker(cmp.Or(w.Interval, progressInterval))
	defer ticks.Stop()
	for id := only; ; {
		var err error
		if only == uuid.Nil {
			if id, err = w.Store.WorkspaceAfter(ctx, id); err != nil {
				return w.printInterrupted(ctx, result, err)
			}
			if id == uuid.Nil {
				break
			}
		}
		found, err := w.compareWorkspace(ctx, id, func() {
			fmt.Fprintf(w.Progress, "so far: %s; comparing workspace %s\n", result, id)
		}, ticks.C)
		if err != nil {
			return w.printInterrupted(ctx, result, err)
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

// compareWorkspace returns the differences of one workspace. Until the comparison ends, it calls
// reportProgress each time ticks receives a value.
func (w Walk) compareWorkspace(ctx context.Context, id uuid.UUID, reportProgress func(),
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
			reportProgress()
		}
	}
}

type report struct {
	Workspaces  int                 `json:"workspaces"`
	Differences []ledger.Difference `json:"differences"` // the first maxDifferences differences
	Count       int                 `json:"difference_count"`
	BrokenOff   bool                `json:"broken_off"`
}

// maxDifferences limits the number of differences in the JSON object.
const maxDifferences = 10_000

func (a *report) add(found []ledger.Difference) {
	a.Workspaces++
	a.Count += len(found)
	a.Differences = append(a.Differences, found[:min(len(found), maxDifferences-len(a.Differences))]...)
}

func (a report) String() string {
	return fmt.Sprintf("%d workspaces compared, %d differences", a.Workspaces, a.Count)
}

func (w Walk) print(ctx context.Context, prefix string, result report) error {
	if service.Scripted(ctx) {
		return json.NewEncoder(w.Out).Encode(result)
	}
	_, err := fmt.Fprintf(w.Out, "%s%s\n", prefix, result)
	return err
}

// printInterrupted prints the incomplete result. The returned error does not wrap the error of ctx,
// because libs/service treats that error as success. The command would then succeed as if there
// were no differences.
func (w Walk) printInterrupted(ctx context.Context, result report, err error) error {
	result.BrokenOff = true
	_ = w.print(ctx, "broken off: ", result)
	if ctx.Err() != nil {
		return errors.New("reconciliation was interrupted: run it again")
	}
	return fmt.Errorf("reconciliation was broken off by an error: %w", err)
}
