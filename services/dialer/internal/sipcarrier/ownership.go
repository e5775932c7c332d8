package sipcarrier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/service"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/internal/trunks"
)

const (
	// heartbeatInterval is how often a process gives its sign of life and sees what others ask of its calls.
	heartbeatInterval = 250 * time.Millisecond
	// heartbeatTimeout bounds one sign of life: behind one that hangs, the next may get through before we count as gone.
	heartbeatTimeout = 2 * time.Second
	// takeoverInterval is how often it looks for calls that nobody owns any more, and prunes.
	takeoverInterval = 500 * time.Millisecond
	pruneInterval    = time.Minute
	// teardownTimeout bounds the hang-up of a call whose owner is gone.
	teardownTimeout = 6 * time.Second
	// endTimeout is how long the ends of the last calls may take to be told.
	endTimeout = 8 * time.Second
)

// Run does what others ask of this process's calls, and ends the calls of processes that are gone. When ctx ends, no call begins any more, and those that live are seen through for as
// long as Drain says.
func (c *Carrier) Run(ctx context.Context) error {
	defer close(c.stopped)
	searches, prunes := time.NewTicker(takeoverInterval), time.NewTicker(pruneInterval)
	defer searches.Stop()
	defer prunes.Stop()
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	// The first heartbeat precedes the first call: other processes end the calls of an owner without one.
	err := c.heartbeat(working)
	var living sync.WaitGroup
	living.Go(func() { c.heartbeatLoop(working) })
	defer living.Wait()
	defer stop()
	var leaving sync.WaitGroup
	defer leaving.Wait() // the line is closed behind Run
	told := ctx.Done()
	var drained <-chan struct{}
	if err == nil { // no call is placed before the first answer to OPTIONS
		err = c.updateMonitors(working)
	}
	if err != nil {
		slog.WarnContext(ctx, "first heartbeat or read of the trunks failed", "error", err)
	}
	for {
		var err error
		select {
		case <-told:
			told, drained = nil, c.drain(working)
			leaving.Go(c.stopMonitors)
		case <-drained:
			return nil
		case <-searches.C:
			if err = c.takeoverRound(working); err == nil && told != nil {
				err = c.updateMonitors(working)
			}
		case <-prunes.C:
			bounded, done := context.WithTimeout(working, journalTimeout)
			_, err = c.legStore.Prune(bounded, c.cfg.Keep)
			done()
		}
		if err != nil {
			slog.WarnContext(ctx, "the journal of SIP calls cannot be looked at", "error", err)
		}
	}
}

// takeoverRound looks whose calls are nobody's, which of ours are another's, and how many we are.
func (c *Carrier) takeoverRound(ctx context.Context) error {
	ctx, done := context.WithTimeout(ctx, journalTimeout)
	defer done()
	living, err := c.legStore.LiveOwners(ctx)
	if err == nil {
		c.selector.SetProcesses(living)
	}
	return errors.Join(err, c.adoptOrphans(ctx), c.giveUpLost(ctx))
}

// heartbeatLoop gives signs of life, which wait for nothing else: whoever falls silent loses his calls.
func (c *Carrier) heartbeatLoop(ctx context.Context) {
	looks := time.NewTicker(heartbeatInterval)
	defer looks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-looks.C:
		}
		if err := c.heartbeat(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "the journal of SIP calls cannot be looked at", "error", err)
		}
	}
}

// drain takes no more calls. The returned channel is closed when the live calls have ended. After
// cfg.Drain, or when the process is hurried, they are hung up.
func (c *Carrier) drain(ctx context.Context) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		defer close(over)
		limited, cancel := context.WithTimeout(ctx, c.cfg.Drain)
		defer cancel()
		go func() {
			select {
			case <-service.Hurried(ctx):
				cancel()
			case <-limited.Done():
			}
		}()
		if n := c.Live(); n > 0 {
			slog.Info("waiting for live calls to end; a second signal hangs them up", "calls", n, "limit", c.cfg.Drain)
		}
		_ = c.agent.Drain(limited) // an error says that the limit was reached
		live := c.allLegs()
		if len(live) > 0 {
			slog.Info("hanging up live calls", "calls", len(live))
		}
		for _, l := range live {
			l.hangUp(l.stopCause())
		}
		for begun := time.Now(); c.Live() > 0 && time.Since(begun) < endTimeout; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pollInterval):
			}
		}
	}()
	return over
}

func (c *Carrier) heartbeat(ctx context.Context) error {
	bounded, done := context.WithTimeout(ctx, heartbeatTimeout)
	defer done()
	asked, err := c.legStore.Heartbeat(bounded)
	if err != nil {
		return err
	}
	for _, one := range asked {
		l := c.leg(one.CallID)
		switch {
		case l == nil && one.HangupAt != nil: // it never left, or its end is lost
			c.endOrphanAsync(ctx, one)
		case l != nil && one.HangupAt != nil:
			l.hangUp(callstate.NormalClearing)
		case l != nil:
			l.answer()
		}
	}
	return nil
}

// adoptOrphans ends the calls whose owner is gone: their audio went with it.
func (c *Carrier) adoptOrphans(ctx context.Context) error {
	orphans, err := c.legStore.Adopt(ctx)
	if err != nil || len(orphans) == 0 {
		return err
	}
	for _, orphan := range orphans {
		c.endOrphanAsync(ctx, orphan)
	}
	return nil
}

// giveUpLost hangs up the legs that another process took over while this one had no heartbeat. That
// process may not have reached the trunk.
func (c *Carrier) giveUpLost(ctx context.Context) error {
	legs := c.allLegs()
	if len(legs) == 0 {
		return nil
	}
	ids := make([]uuid.UUID, 0, len(legs))
	for _, l := range legs {
		ids = append(ids, l.callID)
	}
	lost, err := c.legStore.LostLegs(ctx, ids)
	if err != nil {
		return err
	}
	for _, id := range lost {
		if l := c.leg(id); l != nil {
			l.giveUp()
		}
	}
	return nil
}

// endOrphanAsync ends an orphan beside everything else, once at a time: the signs of life must not wait for a trunk.
func (c *Carrier) endOrphanAsync(ctx context.Context, orphan store.Leg) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endingOrphans[orphan.CallID] {
		return
	}
	c.endingOrphans[orphan.CallID] = true
	go func() {
		c.endOrphan(ctx, orphan)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.endingOrphans, orphan.CallID)
	}()
}

// endOrphan ends a call of which only the journal tells. Whether the trunk answers or not, it is over here: with its audio gone there is nothing to go on with.
func (c *Carrier) endOrphan(ctx context.Context, orphan store.Leg) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), teardownTimeout)
	defer cancel()
	if err := c.tearDown(ctx, orphan); err != nil {
		c.warn("the trunk was not told that an orphaned call is over", orphan.CallID, err)
	}
	l := &leg{carrier: c, callID: orphan.CallID, record: orphan}
	ended := l.event(carrier.Ended, time.Now())
	ended.Cause, ended.ByUs, ended.DialedAt = callstate.Unspecified, true, orphan.DialedAt
	l.enqueue(entry{last: true, event: ended, end: &store.End{
		At: ended.At, Cause: ended.Cause, ByUs: true, Answer: store.Answer{Error: "the process that held the call ended"},
	}})
}

func (c *Carrier) tearDown(ctx context.Context, orphan store.Leg) error {
	if orphan.Teardown == nil {
		return nil
	}
	over, err := c.trunks.Find(ctx, orphan.TrunkID)
	switch {
	case errors.Is(err, pg.ErrNotFound): // removed since: the state says where it goes, only its credentials are lost
		over = trunks.New(orphan.TrunkID)
		over.Host = "removed.invalid"
	case err != nil:
		return err
	}
	if err := c.agent.Reap(ctx, sipTrunk(over), orphan.Teardown); err != nil {
		return fmt.Errorf("reap call %s: %w", orphan.CallID, err)
	}
	return nil
}
