// Package reconcile holds the books against each other: by command, which tells every difference, and once in a while beside the
// service, which counts them. It repairs nothing. What is compared, the store says.
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

// progress is the time between two lines that tell how far a walk is.
const progress = 5 * time.Second

// Walk compares the books of every workspace, or of one, each in a snapshot of its own: one of all would keep the database from
// clearing away what the service deletes meanwhile.
type Walk struct {
	Store *store.Store
	// Out gets a line for each difference and the count at the end, or for a script (service.Scripted) one object; Progress a line now and then.
	Out, Progress io.Writer
	// Every is the time between two lines of progress; zero: 5 s.
	Every time.Duration
}

// Run walks all workspaces, or looks at only when it is not the nil UUID. Its error says that there are differences, or that not
// everything was compared; store.ErrNoWallet that only is unknown.
func (w Walk) Run(ctx context.Context, only uuid.UUID) error {
	told := answer{Differences: []ledger.Difference{}}
	ticks := time.NewTicker(cmp.Or(w.Every, progress))
	defer ticks.Stop()
	for id := only; ; {
		var err error
		if only == uuid.Nil {
			if id, err = w.Store.WorkspaceAfter(ctx, id); err != nil {
				return w.brokenOff(ctx, told, err)
			}
			if id == uuid.Nil {
				break
			}
		}
		found, err := w.compare(ctx, id, func() {
			fmt.Fprintf(w.Progress, "so far: %s; comparing workspace %s\n", told, id)
		}, ticks.C)
		if err != nil {
			return w.brokenOff(ctx, told, err)
		}
		told.add(found)
		if !service.Scripted(ctx) {
			for _, difference := range found {
				fmt.Fprintln(w.Out, difference)
			}
		}
		if only != uuid.Nil {
			break
		}
	}
	if err := w.end(ctx, "", told); err != nil {
		return err
	}
	if told.Count > 0 {
		return fmt.Errorf("the books do not agree: %d differences", told.Count)
	}
	return nil
}

// compare looks at one workspace and tells at each tick that it still does.
func (w Walk) compare(ctx context.Context, id uuid.UUID, tell func(), ticks <-chan time.Time) (found []ledger.Difference, err error) {
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
			tell()
		}
	}
}

// answer is what was compared so far.
type answer struct {
	Workspaces  int                 `json:"workspaces"`
	Differences []ledger.Difference `json:"differences"` // the first mostDifferences
	Count       int                 `json:"difference_count"`
	BrokenOff   bool                `json:"broken_off"`
}

// mostDifferences bounds what is kept for a script.
const mostDifferences = 10_000

func (a *answer) add(found []ledger.Difference) {
	a.Workspaces++
	a.Count += len(found)
	a.Differences = append(a.Differences, found[:min(len(found), mostDifferences-len(a.Differences))]...)
}

func (a answer) String() string {
	return fmt.Sprintf("%d workspaces compared, %d differences", a.Workspaces, a.Count)
}

// end prints how it ended.
func (w Walk) end(ctx context.Context, how string, told answer) error {
	if service.Scripted(ctx) {
		return json.NewEncoder(w.Out).Encode(told)
	}
	_, err := fmt.Fprintf(w.Out, "%s%s\n", how, told)
	return err
}

// brokenOff hides that a context ended: to the frame of a service that is a good end, and nobody may take it for books that agree.
func (w Walk) brokenOff(ctx context.Context, told answer, err error) error {
	told.BrokenOff = true
	_ = w.end(ctx, "broken off: ", told) // what broke it off is told in any case
	if ctx.Err() != nil {
		return errors.New("reconciling was interrupted: run it again")
	}
	return fmt.Errorf("reconciling was broken off: %w", err)
}
