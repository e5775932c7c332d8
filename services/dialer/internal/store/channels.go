package store

import (
	"context"
	"errors"
	"fmt"

	"ringfence.dev/libs/pg"
)

// ErrChannels is returned if all channels of the trunk are in use. Inbound and outbound calls of
// all processes use the same channels.
var ErrChannels = errors.New("the channels of the trunk are in use")

const storedCall = `SELECT EXISTS (SELECT FROM sip_legs WHERE call_id = @call_id)`

func (j *Legs) conflictError(ctx context.Context, c Leg) error {
	var stored bool
	if err := j.pool.QueryRow(ctx, storedCall, pg.Args{"call_id": c.CallID}).Scan(&stored); err != nil {
		return fmt.Errorf("find call %s: %w", c.CallID, err)
	}
	if stored {
		return ErrLegExists
	}
	return ErrChannels
}
