package sipcarrier

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/trunks"
)

// switchboard chooses the trunk of a call. Candidates are the trunks that answer and have a free
// channel, in the order of their priority. Of the same priority, the trunk with the smallest share
// of channels in use is first. A trunk that has reached its calls per second is passed over if
// another one has not.
type switchboard struct {
	mu    sync.Mutex
	paces map[uuid.UUID]*pace
	// living is the number of processes that share the trunks. If 0, it is not known yet.
	living int
}

// share sets the number of processes that share the pace of the trunks.
func (s *switchboard) share(living int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.living = living
}

// pace is a token bucket for one second, and for at least one call.
type pace struct {
	level float64
	at    time.Time
}

func (p *pace) take(perSecond float64, now time.Time) bool {
	most := max(perSecond, 1)
	if p.at.IsZero() {
		p.level = most
	}
	p.level = min(most, p.level+now.Sub(p.at).Seconds()*perSecond)
	p.at = now
	if p.level < 1 || perSecond <= 0 {
		return false
	}
	p.level--
	return true
}

var (
	errNoActive    = errors.New("no trunk is active; set one up under /admin/v1/trunks")
	errFull        = errors.New("no active trunk that answers has a free channel")
	errOtherNumber = errors.New("every trunk would show another number")
	errResting     = errors.New("the circuit of this trunk is open")
)

// order returns the trunks that a call may be offered to, in order: those with a free channel that are not
// closed. An INVITE to a trunk that is down would cost the request.
func order(active []trunks.Trunk, live map[uuid.UUID]int, closed func(uuid.UUID) bool) []trunks.Trunk {
	room := slices.DeleteFunc(slices.Clone(active), func(t trunks.Trunk) bool {
		return live[t.TrunkID] >= int(t.Channels) || closed(t.TrunkID)
	})
	slices.SortStableFunc(room, func(a, b trunks.Trunk) int {
		return cmp.Or(
			cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(live[a.TrunkID]*int(b.Channels), live[b.TrunkID]*int(a.Channels)),
		)
	})
	return room
}

// pick returns the trunk that is tried next and the others. It is the chosen one if that is among the candidates: its
// pace has been taken. Otherwise it is the first that has pace left, of which each process has its part, and pick takes
// one call of it. What the trunks carry in a second together bounds the calls, so if none has pace left, the first is
// tried anyway.
func (s *switchboard) pick(candidates []trunks.Trunk, chosen string, now time.Time) (trunks.Trunk, []trunks.Trunk) {
	at := slices.IndexFunc(candidates, func(t trunks.Trunk) bool { return t.TrunkID.String() == chosen })
	if at < 0 {
		at = max(0, slices.IndexFunc(candidates, func(t trunks.Trunk) bool { return s.take(t, now) }))
	}
	return candidates[at], slices.Delete(slices.Clone(candidates), at, at+1)
}

// take takes one call of the pace of a trunk.
func (s *switchboard) take(t trunks.Trunk, now time.Time) bool {
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
	return p.take(float64(t.CallsPerSecond)/float64(max(s.living, 1)), now)
}

// candidates are the trunks that a call may be offered to, in order, without those that refused its request before.
func (c *Carrier) candidates(ctx context.Context, without []string) ([]trunks.Trunk, error) {
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
	active = slices.DeleteFunc(slices.Clone(active), func(t trunks.Trunk) bool { return slices.Contains(without, t.TrunkID.String()) })
	ordered := order(active, live, func(id uuid.UUID) bool { return c.tended.care(id).closed() })
	if len(ordered) == 0 {
		return nil, errFull
	}
	return ordered, nil
}

// From chooses the trunk that is tried first for a call from the wanted number and takes one call of its pace. It
// returns the number that the phone will show and the trunk's id. without are the trunks that refused the request. If
// no trunk can take the call now, it returns the wanted number; Originate then sends nothing.
//
// If wanted is empty, only a trunk with caller_ids can take the call. If no such trunk is active, the error
// is carrier.ErrNoNumber.
func (c *Carrier) From(ctx context.Context, wanted string, without []string) (number, over string, err error) {
	candidates, err := c.candidates(ctx, without)
	if wanted == "" {
		candidates = slices.DeleteFunc(candidates, func(t trunks.Trunk) bool { return len(t.CallerIDs) == 0 })
		if len(candidates) == 0 {
			return "", "", c.noNumber(ctx)
		}
	}
	if errors.Is(err, errNoActive) || errors.Is(err, errFull) {
		return wanted, "", nil
	}
	if err != nil {
		return "", "", err
	}
	first, _ := c.board.pick(candidates, "", time.Now())
	return first.CallerID(wanted), first.TrunkID.String(), nil
}

// noNumber returns why no trunk with a caller ID can take a call.
func (c *Carrier) noNumber(ctx context.Context) error {
	active, err := c.trunks.Active(ctx)
	switch {
	case err != nil:
		return err
	case len(active) == 0:
		return errNoActive
	case slices.ContainsFunc(active, func(t trunks.Trunk) bool { return len(t.CallerIDs) > 0 }):
		return errFull
	}
	return carrier.ErrNoNumber
}
