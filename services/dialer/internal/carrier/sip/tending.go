package sip

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/signal/upkeep"
	"ringfence.dev/services/dialer/internal/trunk"
)

// tended are the trunks that this process looks after: whether they are there, and that they know where we are.
type tended struct {
	mu  sync.Mutex
	all map[uuid.UUID]*care
}

// care is one trunk's, as it was set up at a version.
type care struct {
	version int64
	upkeep  *upkeep.Upkeep
	stop    context.CancelFunc
	done    chan struct{} // closed when the trunk was told that we are gone
}

// down says that a trunk did not answer lately.
func (t *tended) down(id uuid.UUID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.all[id]
	return one != nil && !one.upkeep.Up()
}

// tend begins to look after new trunks, begins anew with those that changed, and ends with those that are active no more.
func (c *Carrier) tend(ctx context.Context) error {
	bounded, done := context.WithTimeout(ctx, patience)
	defer done()
	active, err := c.trunks.Active(bounded)
	if err != nil {
		return err
	}
	c.tended.mu.Lock()
	defer c.tended.mu.Unlock()
	if c.tended.all == nil {
		c.tended.all = map[uuid.UUID]*care{}
	}
	gone := map[uuid.UUID]bool{}
	for id := range c.tended.all {
		gone[id] = true
	}
	for _, t := range active {
		if old := c.tended.all[t.TrunkID]; old == nil || old.version != t.Version {
			c.tended.all[t.TrunkID] = c.lookAfter(ctx, t, old)
		}
		delete(gone, t.TrunkID)
	}
	for id := range gone {
		c.tended.all[id].stop()
		delete(c.tended.all, id)
	}
	return nil
}

// lookAfter does not wait, but what it begins does, for the end of the old care: its farewell must not come behind the new registration.
func (c *Carrier) lookAfter(ctx context.Context, t trunk.Trunk, old *care) *care {
	cfg := upkeep.Config{Name: t.Name, Probe: func(ctx context.Context) error { return c.agent.Probe(ctx, wire(t)) }}
	if t.Register {
		cfg.Register = func(ctx context.Context, expires time.Duration) (time.Duration, error) {
			return c.agent.Register(ctx, wire(t), expires)
		}
	}
	one := &care{version: t.Version, upkeep: upkeep.New(cfg), done: make(chan struct{})}
	ctx, one.stop = context.WithCancel(ctx)
	go func() {
		defer close(one.done)
		if old != nil {
			old.stop()
			<-old.done
		}
		_ = one.upkeep.Run(ctx) // ends with ctx
	}()
	return one
}

// untend ends it all: trunks are told that we are gone.
func (c *Carrier) untend() {
	c.tended.mu.Lock()
	all := c.tended.all
	c.tended.all = nil
	c.tended.mu.Unlock()
	for _, one := range all {
		one.stop()
	}
	for _, one := range all {
		<-one.done
	}
}
