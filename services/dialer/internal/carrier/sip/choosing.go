package sip

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/trunk"
)

const (
	// checkup is how often each trunk is asked whether it is there; two misses in a row, and it is down until it answers.
	checkup = 30 * time.Second
	misses  = 2
)

// switchboard says over which trunk a call goes: by priority, among those that are there and have a channel and the pace for it; of the same priority the emptiest.
type switchboard struct {
	mu     sync.Mutex
	missed map[uuid.UUID]int
	paces  map[uuid.UUID]*pace
}

// pace is a bucket that holds one second.
type pace struct {
	level float64
	at    time.Time
}

func (p *pace) take(perSecond float64, now time.Time) bool {
	if p.at.IsZero() {
		p.level = perSecond
	}
	p.level = min(perSecond, p.level+now.Sub(p.at).Seconds()*perSecond)
	p.at = now
	if p.level < 1 {
		return false
	}
	p.level--
	return true
}

var (
	errNoActive = errors.New("no trunk is active; set one up under /admin/v1/trunks")
	errFull     = errors.New("every trunk that is there has all its channels in use, or its calls a second")
)

// order puts the trunks in the order in which a call is offered to them; pace is taken when one is chosen (take).
func (s *switchboard) order(active []trunk.Trunk, live map[uuid.UUID]int) []trunk.Trunk {
	s.mu.Lock()
	defer s.mu.Unlock()
	room := slices.DeleteFunc(slices.Clone(active), func(t trunk.Trunk) bool { return live[t.TrunkID] >= int(t.Channels) })
	slices.SortStableFunc(room, func(a, b trunk.Trunk) int {
		return cmp.Or(
			cmp.Compare(min(s.missed[a.TrunkID], misses)/misses, min(s.missed[b.TrunkID], misses)/misses), // one that is down comes last: it may have come back
			cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(live[a.TrunkID]*int(b.Channels), live[b.TrunkID]*int(a.Channels)),
		)
	})
	return room
}

// take takes one call of a trunk's pace in this process.
func (s *switchboard) take(t trunk.Trunk, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paces == nil {
		s.paces = map[uuid.UUID]*pace{}
	}
	p := s.paces[t.TrunkID]
	if p == nil {
		p = &pace{}
		s.paces[t.TrunkID] = p
	}
	return p.take(float64(t.CallsPerSecond), now)
}

// heard takes what a checkup brought.
func (s *switchboard) heard(t trunk.Trunk, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.missed == nil {
		s.missed = map[uuid.UUID]int{}
	}
	before := s.missed[t.TrunkID]
	if err == nil {
		delete(s.missed, t.TrunkID)
	} else {
		s.missed[t.TrunkID] = before + 1
	}
	switch after := s.missed[t.TrunkID]; {
	case before < misses && after == misses:
		slog.Warn("a trunk is down", "trunk", t.Name, "error", err)
	case before >= misses && after == 0:
		slog.Info("a trunk is there again", "trunk", t.Name)
	}
}

// check asks every active trunk whether it is there.
func (c *Carrier) check(ctx context.Context) {
	active, err := c.trunks.Active(ctx)
	if err != nil {
		return // the journal's rounds say so
	}
	var all sync.WaitGroup
	for _, t := range active {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, probe)
			defer cancel()
			c.board.heard(t, c.agent.Probe(ctx, wire(t)))
		})
	}
	all.Wait()
}

// candidates are the trunks that a call may be offered to, in order.
func (c *Carrier) candidates(ctx context.Context) ([]trunk.Trunk, error) {
	active, err := c.trunks.Active(ctx)
	if err != nil {
		return nil, err
	}
	if len(active) == 0 {
		return nil, errNoActive
	}
	live, err := c.journal.Channels(ctx)
	if err != nil {
		return nil, err
	}
	ordered := c.board.order(active, live)
	if len(ordered) == 0 {
		return nil, errFull
	}
	return ordered, nil
}
