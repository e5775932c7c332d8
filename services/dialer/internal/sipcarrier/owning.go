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
	// look is how often a process gives its sign of life and sees what others ask of its calls.
	look = 250 * time.Millisecond
	// breath bounds one sign of life: behind one that hangs, the next may get through before we count as gone.
	breath = 2 * time.Second
	// search is how often it looks for calls that nobody owns any more, and prunes.
	search = 500 * time.Millisecond
	prune  = time.Minute
	// reaping bounds the hang-up of a call whose owner is gone.
	reaping = 6 * time.Second
	// parting is how long the ends of the last calls may take to be told.
	parting = 8 * time.Second
)

// Run does what others ask of this process's calls, and ends the calls of processes that are gone. When ctx ends, no call begins any more, and those that live are seen through for as
// long as Drain says.
func (c *Carrier) Run(ctx context.Context) error {
	defer close(c.over)
	searches, prunes := time.NewTicker(search), time.NewTicker(prune)
	defer searches.Stop()
	defer prunes.Stop()
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	// The first heartbeat precedes the first call: other processes end the calls of an owner without one.
	err := c.lookRound(working)
	var living sync.WaitGroup
	living.Go(func() { c.live(working) })
	defer living.Wait()
	defer stop()
	var leaving sync.WaitGroup
	defer leaving.Wait() // the line is closed behind Run
	told := ctx.Done()
	var drained <-chan struct{}
	if err == nil { // no call is placed before the first answer to OPTIONS
		err = c.tend(working)
	}
	if err != nil {
		slog.WarnContext(ctx, "first heartbeat or read of the trunks failed", "error", err)
	}
	for {
		var err error
		select {
		case <-told:
			told, drained = nil, c.drain(working)
			leaving.Go(c.untend)
		case <-drained:
			return nil
		case <-searches.C:
			if err = c.round(working); err == nil && told != nil {
				err = c.tend(working)
			}
		case <-prunes.C:
			bounded, done := context.WithTimeout(working, patience)
			_, err = c.journal.Prune(bounded, c.cfg.Keep)
			done()
		}
		if err != nil {
			slog.WarnContext(ctx, "the journal of SIP calls cannot be looked at", "error", err)
		}
	}
}

// round looks whose calls are nobody's, which of ours are another's, and how many we are.
func (c *Carrier) round(ctx context.Context) error {
	ctx, done := context.WithTimeout(ctx, patience)
	defer done()
	living, err := c.journal.Living(ctx)
	if err == nil {
		c.board.share(living)
	}
	return errors.Join(err, c.adopt(ctx), c.yield(ctx))
}

// live gives signs of life, which wait for nothing else: whoever falls silent loses his calls.
func (c *Carrier) live(ctx context.Context) {
	looks := time.NewTicker(look)
	defer looks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-looks.C:
		}
		if err := c.lookRound(ctx); err != nil && ctx.Err() == nil {
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
		live := c.all()
		if len(live) > 0 {
			slog.Info("hanging up live calls", "calls", len(live))
		}
		for _, l := range live {
			l.hangUp(l.stopCause())
		}
		for begun := time.Now(); c.Live() > 0 && time.Since(begun) < parting; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(glance):
			}
		}
	}()
	return over
}

func (c *Carrier) lookRound(ctx context.Context) error {
	bounded, done := context.WithTimeout(ctx, breath)
	defer done()
	asked, err := c.journal.Beat(bounded)
	if err != nil {
		return err
	}
	for _, one := range asked {
		l := c.leg(one.CallID)
		switch {
		case l == nil && one.HangupAt != nil: // it never left, or its end is lost
			c.endLater(ctx, one)
		case l != nil && one.HangupAt != nil:
			l.hangUp(callstate.NormalClearing)
		case l != nil:
			l.pickUp()
		}
	}
	return nil
}

// adopt ends the calls whose owner is gone: their audio went with it.
func (c *Carrier) adopt(ctx context.Context) error {
	orphans, err := c.journal.Adopt(ctx)
	if err != nil || len(orphans) == 0 {
		return err
	}
	for _, orphan := range orphans {
		c.endLater(ctx, orphan)
	}
	return nil
}

// yield hangs up the legs that another process took over while this one had no heartbeat. That
// process may not have reached the trunk.
func (c *Carrier) yield(ctx context.Context) error {
	legs := c.all()
	if len(legs) == 0 {
		return nil
	}
	ids := make([]uuid.UUID, 0, len(legs))
	for _, l := range legs {
		ids = append(ids, l.callID)
	}
	lost, err := c.journal.Lost(ctx, ids)
	if err != nil {
		return err
	}
	for _, id := range lost {
		if l := c.leg(id); l != nil {
			l.lose()
		}
	}
	return nil
}

// endLater ends an orphan beside everything else, once at a time: the signs of life must not wait for a trunk.
func (c *Carrier) endLater(ctx context.Context, orphan store.Leg) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ends[orphan.CallID] {
		return
	}
	c.ends[orphan.CallID] = true
	go func() {
		c.endOrphan(ctx, orphan)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.ends, orphan.CallID)
	}()
}

// endOrphan ends a call of which only the journal tells. Whether the trunk answers or not, it is over here: with its audio gone there is nothing to go on with.
func (c *Carrier) endOrphan(ctx context.Context, orphan store.Leg) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reaping)
	defer cancel()
	if err := c.reap(ctx, orphan); err != nil {
		c.warn("the trunk was not told that an orphaned call is over", orphan.CallID, err)
	}
	l := &leg{carrier: c, callID: orphan.CallID, record: orphan}
	ended := l.event(carrier.Ended, time.Now())
	ended.Cause, ended.ByUs, ended.DialedAt = callstate.Unspecified, true, orphan.DialedAt
	l.later(entry{last: true, event: ended, end: &store.End{
		At: ended.At, Cause: ended.Cause, ByUs: true, Answer: store.Answer{Error: "the process that held the call ended"},
	}})
}

func (c *Carrier) reap(ctx context.Context, orphan store.Leg) error {
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
	if err := c.agent.Reap(ctx, wire(over), orphan.Teardown); err != nil {
		return fmt.Errorf("reap call %s: %w", orphan.CallID, err)
	}
	return nil
}
