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
	analysisInterval = time.Second
	// analysisTimeout limits one summary. The lease of a claimed call is longer, so no other process
	// claims the call in this time.
	analysisTimeout = time.Minute
	// maxStarts is how often the summary of a call is started. After that, the call gets no summary,
	// because the summary possibly caused the death of the processes.
	maxStarts = 3
	// maxAnalyses is the maximum number of concurrent analyses, and maxPerWorkspace the maximum of one
	// workspace. So a slow endpoint delays only the summaries of its workspace. claimBatch is the
	// number of calls that are claimed at once.
	maxAnalyses     = 128
	maxPerWorkspace = maxAnalyses / 4
	claimBatch      = 16
)

// SummaryModel summarises calls. It returns nil and no error if there is nothing to summarise.
type SummaryModel interface {
	Summarise(ctx context.Context, c Call) (*agent.Summary, error)
}

// Keys returns the keys for the workspaces' endpoints.
type Keys interface {
	Key(ctx context.Context, workspaceID, agentID uuid.UUID) (string, error)
}

// Analyser publishes the analysis of each ended conversation. The analysis contains the model's
// summary, if the model returned one.
type Analyser struct {
	store      *store.Store
	keys       Keys
	summariser SummaryModel
	relay      *outbox.Relay
	wake       chan struct{}
	busy       chan struct{}
	// lastWorkspace is the id of the workspace at which the last search ended. The next search starts
	// after it. Only the goroutine of Run uses it.
	lastWorkspace uuid.UUID

	mu      sync.Mutex
	ongoing map[uuid.UUID]int // number of running analyses by workspace
}

// NewAnalyser returns an analyser of the calls in the store.
func NewAnalyser(st *store.Store, keys Keys, summariser SummaryModel, relay *outbox.Relay) *Analyser {
	return &Analyser{
		store: st, keys: keys, summariser: summariser, relay: relay, wake: make(chan struct{}, 1), busy: make(chan struct{},
			maxAnalyses), ongoing: map[uuid.UUID]int{},
	}
}

// Wake makes Run search for due analyses. It is called when calls have ended, and never blocks.
func (a *Analyser) Wake() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Run analyses calls until ctx ends.
func (a *Analyser) Run(ctx context.Context) error {
	ticker := time.NewTicker(analysisInterval)
	defer ticker.Stop()
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-a.wake:
		}
		if err := a.startDueAnalyses(ctx, &running); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "search for calls to analyse failed", "error", err)
		}
	}
}

// startDueAnalyses starts due analyses, one workspace after the other, without waiting for their
// end. It returns when a search through all workspaces has found no due analysis.
func (a *Analyser) startDueAnalyses(ctx context.Context, running *sync.WaitGroup) error {
	// noneFound is true if no due analysis was found since the search began at the first workspace.
	for noneFound := a.lastWorkspace == uuid.Nil; ; {
		due, next, err := a.store.DueAnalyses(ctx, a.lastWorkspace, a.claimLimits())
		if err != nil {
			return err
		}
		a.lastWorkspace, noneFound = next, noneFound && len(due) == 0
		a.countStarted(due)
		for _, analysis := range due {
			select {
			case a.busy <- struct{}{}:
			case <-ctx.Done(): // another process will claim the call
				return nil
			}
			running.Go(func() {
				defer func() { <-a.busy; a.countEnded(analysis.WorkspaceID) }()
				if err := a.analyse(ctx, analysis); err != nil {
					slog.WarnContext(ctx, "call analysis not stored, retrying", "call_id", analysis.CallID, "error", err)
				}
			})
		}
		if next == uuid.Nil {
			if noneFound {
				return nil
			}
			noneFound = true
		}
	}
}

// claimLimits returns the limits of the next claim: for all workspaces together, and for each
// workspace.
func (a *Analyser) claimLimits() store.AnalysisLimits {
	a.mu.Lock()
	defer a.mu.Unlock()
	return store.AnalysisLimits{Total: claimBatch, PerWorkspace: maxPerWorkspace, Ongoing: maps.Clone(a.ongoing)}
}

func (a *Analyser) countStarted(due []store.Analysis) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, analysis := range due {
		a.ongoing[analysis.WorkspaceID]++
	}
}

// countEnded counts the end of an analysis. It wakes the analyser if the workspace had reached its
// limit.
func (a *Analyser) countEnded(workspace uuid.UUID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ongoing[workspace] >= maxPerWorkspace {
		a.Wake()
	}
	if a.ongoing[workspace]--; a.ongoing[workspace] == 0 {
		delete(a.ongoing, workspace)
	}
}

func (a *Analyser) analyse(ctx context.Context, analysis store.Analysis) error {
	var summary *agent.Summary
	if analysis.Analyses <= maxStarts {
		var err error
		if summary, err = a.summarise(ctx, analysis); err != nil {
			if ctx.Err() != nil { // the process is stopping
				return nil //nolint:nilerr // another process will claim the call
			}
			slog.WarnContext(ctx, "call summary failed, analysis has no summary", "call_id", analysis.CallID, "error", err)
		}
	}
	err := a.store.Change(ctx, []uuid.UUID{analysis.CallID}, func(calls map[uuid.UUID]*callstate.Call) {
		if c := calls[analysis.CallID]; c != nil {
			c.Analyse(summary, time.Now())
		}
	})
	a.relay.Wake()
	return err
}

func (a *Analyser) summarise(ctx context.Context, analysis store.Analysis) (*agent.Summary, error) {
	settings, err := agent.ReadSettings(analysis.Settings)
	if err != nil {
		return nil, err
	}
	var key string
	// The key of a media_ws agent signs handshakes. It must not be sent to an endpoint.
	if settings.Kind != agent.MediaWS {
		if key, err = a.keys.Key(ctx, analysis.WorkspaceID, analysis.AgentID); err != nil && !errors.Is(err, pg.ErrNotFound) {
			return nil, err
		}
	}
	if analysis.Outcome == agent.OutcomeUnknown { // neither a tool call nor an event has determined the outcome
		analysis.Outcome = ""
	}
	zone := callstate.Zone(analysis.TimeZone, phone.Number(analysis.Person))
	ctx, cancel := context.WithTimeout(ctx, analysisTimeout)
	defer cancel()
	return a.summariser.Summarise(
		ctx,
		Call{
			Settings:   settings,
			Key:        key,
			Turns:      analysis.Turns,
			EndedAt:    analysis.EndedAt,
			Zone:       zone,
			Outcome:    analysis.Outcome,
			CallbackAt: analysis.CallbackAt,
		},
	)
}
