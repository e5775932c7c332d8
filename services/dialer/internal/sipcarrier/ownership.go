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
	// heartbeatInterval is the time between two heartbeats. A heartbeat stores that this process is
	// alive, and reads the requests of other processes.
	heartbeatInterval = 250 * time.Millisecond
	// heartbeatTimeout limits one heartbeat. It is short, so that after a heartbeat that hangs,
	// another one can succeed before other processes declare this process dead.
	heartbeatTimeout = 2 * time.Second
	// takeoverInterval is the time between two searches for legs of dead processes.
	takeoverInterval = 500 * time.Millisecond
	pruneInterval    = time.Minute
	// teardownTimeout is how long hanging up a leg of a dead process may take.
	teardownTimeout = 6 * time.Second
	// endTimeout is how long a stopping process waits until the ends and the opt-outs of its last
	// calls are stored.
	endTimeout = 8 * time.Second
)

// Run sends heartbeats, carries out requests of other processes, and ends the calls of dead
// processes. After ctx ends, live calls may continue for Config.Drain.
func (c *Carrier) Run(ctx context.Context) error {
	defer close(c.stopped)
	searches, prunes := time.NewTicker(takeoverInterval), time.NewTicker(pruneInterval)
	defer searches.Stop()
	defer prunes.Stop()
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	// The first heartbeat must precede the first call, because other processes end the calls of a
	// process without heartbeats.
	err := c.heartbeat(working)
	var living sync.WaitGroup
	living.Go(func() { c.heartbeatLoop(working) })
	defer living.Wait()
	defer stop()
	var leaving sync.WaitGroup
	// The registrations must be removed before Run returns, because the SIP transport is closed
	// afterwards.
	defer leaving.Wait()
	stopping := ctx.Done()
	var drained <-chan struct{}
	// The monitors start immediately, because no call is offered to a trunk before it has answered
	// OPTIONS.
	if err == nil {
		err = c.updateMonitors(working)
	}
	if err != nil {
		slog.WarnContext(ctx, "first heartbeat of this process or first read of SIP trunks failed", "error", err)
	}
	for {
		var err error
		select {
		case <-stopping:
			stopping, drained = nil, c.drain(working)
			leaving.Go(c.stopMonitors)
		case <-drained:
			return nil
		case <-searches.C:
			if err = c.takeoverRound(working); err == nil && stopping != nil {
				err = c.updateMonitors(working)
			}
		case <-prunes.C:
			bounded, done := context.WithTimeout(working, journalTimeout)
			_, err = c.legStore.Prune(bounded, c.cfg.Keep)
			done()
		}
		if err != nil {
			slog.WarnContext(ctx, "takeover of SIP legs, read of SIP trunks or deletion of old SIP legs failed", "error", err)
		}
	}
}

// takeoverRound counts the live processes and takes over the legs of dead processes. It also hangs
// up the legs of this process that another process has taken over.
func (c *Carrier) takeoverRound(ctx context.Context) error {
	ctx, done := context.WithTimeout(ctx, journalTimeout)
	defer done()
	living, err := c.legStore.LiveOwners(ctx)
	if err == nil {
		c.selector.SetProcesses(living)
	}
	return errors.Join(err, c.adoptOrphans(ctx), c.giveUpLost(ctx))
}

// heartbeatLoop sends heartbeats, independently of all other work. Other processes end the calls of
// a process without heartbeats.
func (c *Carrier) heartbeatLoop(ctx context.Context) {
	ticker := time.NewTicker(heartbeatInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := c.heartbeat(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "heartbeat of this process for its SIP calls not stored in the database", "error", err)
		}
	}
}

// drain makes the carrier accept no more calls. The returned channel is closed when the live calls
// have ended. drain hangs them up after Config.Drain, or at the second stop signal of the process.
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
		_ = c.agent.Drain(limited) // err means that the time limit was reached
		live := c.allLegs()
		if len(live) > 0 {
			slog.Info("hanging up live calls", "calls", len(live))
		}
		for _, l := range live {
			l.hangUp(l.stopCause())
		}
		storing := func() bool { return c.Live() > 0 || c.storingOptOuts.Load() > 0 }
		for begun := time.Now(); storing() && time.Since(begun) < endTimeout; {
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
		// The INVITE of the call was not sent, or the end of the leg was not stored.
		case l == nil && one.HangupAt != nil:
			c.endOrphanAsync(ctx, one)
		case l != nil && one.HangupAt != nil:
			l.hangUp(hangupCause(one.Ending))
		case l != nil:
			l.answerCall(one.WorkspaceID)
		}
	}
	return nil
}

// adoptOrphans takes over and ends the calls of dead processes (the orphans). The audio of such a
// call was lost when its process died.
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

// giveUpLost hangs up the legs that another process took over while this process had no heartbeat.
// The new owner also hangs up, but it may be unable to reach the trunk.
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

// endOrphanAsync ends an orphan in a goroutine, because a heartbeat must not wait for a trunk. For
// each orphan, at most one such goroutine runs.
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

// endOrphan ends a call whose process is dead. The call ends in the database even if the trunk does
// not respond, because the call has no audio any more.
func (c *Carrier) endOrphan(ctx context.Context, orphan store.Leg) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), teardownTimeout)
	defer cancel()
	if err := c.tearDown(ctx, orphan); err != nil {
		c.warn("call of a dead process not ended at the trunk", orphan.CallID, err)
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
	trunk, err := c.trunks.Find(ctx, orphan.TrunkID)
	switch {
	case errors.Is(err, pg.ErrNotFound):
		// The trunk was removed, so there are no credentials. The teardown state contains the address of
		// the trunk.
		trunk = trunks.New(orphan.TrunkID)
		trunk.Host = "removed.invalid"
	case err != nil:
		return err
	}
	if err := c.agent.Reap(ctx, sipTrunk(trunk), orphan.Teardown); err != nil {
		return fmt.Errorf("reap call %s: %w", orphan.CallID, err)
	}
	return nil
}
