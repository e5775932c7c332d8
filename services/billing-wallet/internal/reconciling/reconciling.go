// Package reconciling holds the books against each other: by command, which tells every difference, and once in a while beside the
// service, which counts them. It repairs nothing. What is compared, the store says.
package reconciling

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/billing-wallet/internal/ledger"
	"ringfence.dev/services/billing-wallet/internal/store"
)

// progress is the time between two lines that tell how far a walk is.
const progress = 5 * time.Second

// Walk compares the books of every workspace, or of one, each in a snapshot of its own: one of all would keep the database from
// clearing away what the service deletes meanwhile.
type Walk struct {
	Store *store.Store
	// Out gets a line for each difference and the count at the end, Progress a line now and then.
	Out, Progress io.Writer
	// Every is the time between two lines of progress; zero: 5 s.
	Every time.Duration
}

// Run walks all workspaces, or looks at only when it is not the nil UUID. Its error says that there are differences, or that not
// everything was compared; store.ErrNoWallet that only is unknown.
func (w Walk) Run(ctx context.Context, only uuid.UUID) error {
	var workspaces, differences int
	ticks := time.NewTicker(cmp.Or(w.Every, progress))
	defer ticks.Stop()
	for id := only; ; {
		var err error
		if only == uuid.Nil {
			if id, err = w.Store.WorkspaceAfter(ctx, id); err != nil {
				return w.brokenOff(ctx, workspaces, differences, err)
			}
			if id == uuid.Nil {
				break
			}
		}
		found, err := w.compare(ctx, id, func() {
			fmt.Fprintf(w.Progress, "so far: %s; comparing workspace %s\n", count(workspaces, differences), id)
		}, ticks.C)
		if err != nil {
			return w.brokenOff(ctx, workspaces, differences, err)
		}
		for _, difference := range found {
			fmt.Fprintln(w.Out, difference)
		}
		workspaces, differences = workspaces+1, differences+len(found)
		if only != uuid.Nil {
			break
		}
	}
	fmt.Fprintln(w.Out, count(workspaces, differences))
	if differences > 0 {
		return fmt.Errorf("the books do not agree: %d differences", differences)
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

func count(workspaces, differences int) string {
	return fmt.Sprintf("%d workspaces compared, %d differences", workspaces, differences)
}

// brokenOff hides that a context ended: to the frame of a service that is a good end, and nobody may take it for books that agree.
func (w Walk) brokenOff(ctx context.Context, workspaces, differences int, err error) error {
	fmt.Fprintf(w.Out, "broken off: %s\n", count(workspaces, differences))
	if ctx.Err() != nil {
		return errors.New("reconciling was interrupted: run it again")
	}
	return fmt.Errorf("reconciling was broken off: %w", err)
}
