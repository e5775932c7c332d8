package sip

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/trunk"
)

// switchboard says over which trunk a call goes: by priority, among those that are there and have a channel and the pace for it; of the same priority the emptiest.
type switchboard struct {
	mu    sync.Mutex
	paces map[uuid.UUID]*pace
	// living is how many processes share the trunks; 0: nobody knows yet.
	living int
}

// share says how many processes share the trunks' paces.
func (s *switchboard) share(living int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.living = living
}

// pace is a bucket that holds one second, one call at least.
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
	errOtherNumber = errors.New("this trunk would show another number")
	errResting     = errors.New("the circuit of this trunk is open")
)

// order returns the trunks that a call may be offered to, in order: those with a free channel that are not
// closed. An INVITE to a trunk that is down would cost the request.
func order(active []trunk.Trunk, live map[uuid.UUID]int, closed func(uuid.UUID) bool) []trunk.Trunk {
	room := slices.DeleteFunc(slices.Clone(active), func(t trunk.Trunk) bool {
		return live[t.TrunkID] >= int(t.Channels) || closed(t.TrunkID)
	})
	slices.SortStableFunc(room, func(a, b trunk.Trunk) int {
		return cmp.Or(
			cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(live[a.TrunkID]*int(b.Channels), live[b.TrunkID]*int(a.Channels)),
		)
	})
	return room
}

// paced takes one call of the pace of the first trunk that has it, of which each process has its part, and puts those before it behind all others: what the trunks carry in a second together
// bounds the calls, so when none has it one of them is asked all the same.
func (s *switchboard) paced(candidates []trunk.Trunk, now time.Time) []trunk.Trunk {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paces == nil {
		s.paces = map[uuid.UUID]*pace{}
	}
	for i, t := range candidates {
		p := s.paces[t.TrunkID]
		if p == nil {
			p = &pace{}
			s.paces[t.TrunkID] = p
		}
		if p.take(float64(t.CallsPerSecond)/float64(max(s.living, 1)), now) {
			return slices.Concat(candidates[i:], candidates[:i])
		}
	}
	return candidates
}

// candidates are the trunks that a call may be offered to, in order, without those that refused its request before.
func (c *Carrier) candidates(ctx context.Context, without []string) ([]trunk.Trunk, error) {
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
	active = slices.DeleteFunc(slices.Clone(active), func(t trunk.Trunk) bool { return slices.Contains(without, t.TrunkID.String()) })
	ordered := order(active, live, func(id uuid.UUID) bool { return c.tended.care(id).closed() })
	if len(ordered) == 0 {
		return nil, errFull
	}
	return ordered, nil
}

// From returns the number that the phone will show for a call from the wanted number: the caller id of the trunk
// that is tried first. without are the trunks that refused the request. If no trunk can take the call now,
// it returns the wanted number; Originate then sends nothing.
//
// If wanted is empty, only a trunk with caller_ids can take the call. If no such trunk is active, the error
// is carrier.ErrNoNumber.
func (c *Carrier) From(ctx context.Context, wanted string, without []string) (string, error) {
	candidates, err := c.candidates(ctx, without)
	if wanted == "" {
		return c.fromTrunk(ctx, candidates, err)
	}
	if errors.Is(err, errNoActive) || errors.Is(err, errFull) {
		return wanted, nil
	}
	if err != nil {
		return "", err
	}
	return candidates[0].CallerID(wanted), nil
}

// fromTrunk returns a caller ID of the first candidate that has one. fault is the error of the candidates.
func (c *Carrier) fromTrunk(ctx context.Context, candidates []trunk.Trunk, fault error) (string, error) {
	for _, t := range candidates {
		if len(t.CallerIDs) > 0 {
			return t.CallerIDs[0], nil
		}
	}
	active, err := c.trunks.Active(ctx)
	if err != nil || len(active) == 0 {
		return "", errors.Join(fault, err)
	}
	if slices.ContainsFunc(active, func(t trunk.Trunk) bool { return len(t.CallerIDs) > 0 }) {
		return "", errFull
	}
	return "", carrier.ErrNoNumber
}
