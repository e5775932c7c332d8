// Package analysing sees to the analysis of calls that an agent held by itself: once such a call has ended, it is summarised and told. A call is analysed without a summary when none can be had.

package summary

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/phone"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/store"
)

const (
	every = time.Second
	// patience bounds a summary; the lease of a claimed call is longer.
	patience = time.Minute
	// begins is how often a summary is begun: whoever died of one is followed, but not for ever.
	begins = 3
	// atOnce is how many calls are analysed side by side, ofOne how many of them may be one workspace's: an endpoint that hangs keeps only the summaries of its own
	// calls waiting. They are taken up to batch at a time.
	atOnce = 128
	ofOne  = atOnce / 4
	batch  = 16
)

// SummaryModel makes a summary; nil without an error: there is none to be had.
type SummaryModel interface {
	Summarise(ctx context.Context, c Call) (*agent.Summary, error)
}

// Keys are what workspaces' own endpoints are reached with.
type Keys interface {
	Key(ctx context.Context, workspaceID, agentID uuid.UUID) (string, error)
}

// Analyser analyses.
type Analyser struct {
	store      *store.Store
	keys       Keys
	summariser SummaryModel
	relay      *outbox.Relay
	wake       chan struct{}
	busy       chan struct{}
	// turn is the workspace behind which the next look begins. Run's alone.
	turn uuid.UUID

	mu      sync.Mutex
	ongoing map[uuid.UUID]int // by workspace
}

// NewAnalyser analyses what the store holds.
func NewAnalyser(st *store.Store, keys Keys, summariser SummaryModel, relay *outbox.Relay) *Analyser {
	return &Analyser{
		store: st, keys: keys, summariser: summariser, relay: relay, wake: make(chan struct{}, 1), busy: make(chan struct{}, atOnce), ongoing: map[uuid.UUID]int{},
	}
}

// Wake says that calls have ended. It never blocks.
func (a *Analyser) Wake() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Run analyses until ctx ends.
func (a *Analyser) Run(ctx context.Context) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var begun sync.WaitGroup
	defer begun.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-a.wake:
		}
		if err := a.round(ctx, &begun); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "calls wait to be analysed", "error", err)
		}
	}
}

// round begins what is due, the workspaces in turn, until once around nothing is, and waits for none of it.
func (a *Analyser) round(ctx context.Context, begun *sync.WaitGroup) error {
	for quiet := a.turn == uuid.Nil; ; { // since the first workspace
		due, next, err := a.store.DueAnalyses(ctx, a.turn, a.room())
		if err != nil {
			return err
		}
		a.turn, quiet = next, quiet && len(due) == 0
		a.enter(due)
		for _, one := range due {
			select {
			case a.busy <- struct{}{}:
			case <-ctx.Done(): // the next to look has it
				return nil
			}
			begun.Go(func() {
				defer func() { <-a.busy; a.leave(one.WorkspaceID) }()
				if err := a.analyse(ctx, one); err != nil {
					slog.WarnContext(ctx, "the analysis of a call waits", "call_id", one.CallID, "error", err)
				}
			})
		}
		if next == uuid.Nil {
			if quiet {
				return nil
			}
			quiet = true
		}
	}
}

// room is what may be taken without any workspace having more than its part.
func (a *Analyser) room() store.AnalysisLimits {
	a.mu.Lock()
	defer a.mu.Unlock()
	return store.AnalysisLimits{Total: batch, PerWorkspace: ofOne, Ongoing: maps.Clone(a.ongoing)}
}

func (a *Analyser) enter(due []store.Analysis) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range due {
		a.ongoing[one.WorkspaceID]++
	}
}

// leave looks again at once for a workspace that was left out.
func (a *Analyser) leave(workspace uuid.UUID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ongoing[workspace] >= ofOne {
		a.Wake()
	}
	if a.ongoing[workspace]--; a.ongoing[workspace] == 0 {
		delete(a.ongoing, workspace)
	}
}

func (a *Analyser) analyse(ctx context.Context, one store.Analysis) error {
	var summary *agent.Summary
	if one.Analyses <= begins {
		var err error
		if summary, err = a.summarise(ctx, one); err != nil {
			if ctx.Err() != nil { // told to stop
				return nil //nolint:nilerr // the next to look has it
			}
			slog.WarnContext(ctx, "a call has no summary", "call_id", one.CallID, "error", err)
		}
	}
	err := a.store.Change(ctx, []uuid.UUID{one.CallID}, func(calls map[uuid.UUID]*callstate.Call) {
		if c := calls[one.CallID]; c != nil {
			c.Analyse(summary, time.Now())
		}
	})
	a.relay.Wake()
	return err
}

func (a *Analyser) summarise(ctx context.Context, one store.Analysis) (*agent.Summary, error) {
	settings, err := agent.ReadSettings(one.Settings)
	if err != nil {
		return nil, err
	}
	var key string
	if settings.Kind != agent.MediaWS { // its key signs, and is told to nobody
		if key, err = a.keys.Key(ctx, one.WorkspaceID, one.AgentID); err != nil && !errors.Is(err, pg.ErrNotFound) {
			return nil, err
		}
	}
	if one.Outcome == agent.OutcomeUnknown { // nothing has settled it
		one.Outcome = ""
	}
	zone := callstate.Zone(one.TimeZone, phone.Number(one.Person))
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return a.summariser.Summarise(ctx, Call{Settings: settings, Key: key, Turns: one.Turns, EndedAt: one.EndedAt, Zone: zone, Outcome: one.Outcome, CallbackAt: one.CallbackAt})
}
