package sipcarrier

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/trunks"
)

var (
	errNoActive    = errors.New("no trunk is active; set one up under /admin/v1/trunks")
	errFull        = errors.New("no active trunk that answers has a free channel")
	errOtherNumber = errors.New("every trunk would show a number that differs from the recorded number")
	errCircuitOpen = errors.New("the circuit of this trunk is open")
)

// listCandidates returns the trunks to which a call may be offered, in the order of preference. It
// leaves out paused trunks, and the excluded trunks, which have already refused the call request.
func (c *Carrier) listCandidates(ctx context.Context, excluded []string) ([]trunks.Trunk, error) {
	active, err := c.trunks.Active(ctx)
	if err != nil {
		return nil, err
	}
	if len(active) == 0 {
		return nil, errNoActive
	}
	live, err := c.legStore.Channels(ctx)
	if err != nil {
		return nil, err
	}
	active = slices.DeleteFunc(slices.Clone(active), func(t trunks.Trunk) bool {
		return slices.Contains(excluded, t.TrunkID.String()) || !c.cfg.Pauses.MayUse(ctx, t.TrunkID)
	})
	ordered := trunks.Candidates(active, live, func(id uuid.UUID) bool { return c.monitored.healthOf(id).isUnavailable() })
	if len(ordered) == 0 {
		return nil, errFull
	}
	return ordered, nil
}

// From chooses the first trunk for a call and takes a token from the trunk's rate limit. It
// returns the caller number and the id of the trunk. It does not choose an excluded trunk.
//
// If no trunk can accept a call now, From returns wantedNumber and no trunk. If wantedNumber is
// empty and no active trunk has caller_ids, the error is carrier.ErrNoNumber.
func (c *Carrier) From(
	ctx context.Context, wantedNumber string, excluded []string,
) (number, trunkID string, err error) {
	candidates, err := c.listCandidates(ctx, excluded)
	if wantedNumber == "" {
		candidates = slices.DeleteFunc(candidates, func(t trunks.Trunk) bool { return len(t.CallerIDs) == 0 })
		if len(candidates) == 0 {
			return "", "", c.noNumberError(ctx)
		}
	}
	if errors.Is(err, errNoActive) || errors.Is(err, errFull) {
		return wantedNumber, "", nil
	}
	if err != nil {
		return "", "", err
	}
	first, _ := c.selector.Next(candidates, "", time.Now())
	return first.CallerID(wantedNumber), first.TrunkID.String(), nil
}

// noNumberError returns the reason why no trunk with caller_ids can take a call now.
func (c *Carrier) noNumberError(ctx context.Context) error {
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
