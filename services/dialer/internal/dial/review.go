package dial

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
)

// reviewInterval is the time between two searches for calls that have a committed fence and no
// running attempt.
const reviewInterval = 2 * time.Second

// Review searches, until ctx ends, for calls of this process that have a committed fence and no
// running attempt. The reconciliation after a failover inserts such calls. If the carrier has the
// call, the call continues. Otherwise Review ends it.
func (d *Dialer) Review(ctx context.Context) error {
	ticker := time.NewTicker(reviewInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := d.reviewFencedCalls(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "review of fenced calls without a running attempt failed", "error", err)
		}
	}
}

func (d *Dialer) reviewFencedCalls(ctx context.Context) error {
	fenced, err := d.store.OwnFences(ctx)
	if err != nil {
		return err
	}
	for _, id := range fenced {
		if d.activeCalls.has(id) {
			continue
		}
		if err := d.resolveCall(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// resolveCall continues or ends a call with a committed fence, depending on whether the carrier has
// the call. An attempt can have ended the call in the meantime, so ChangeOnServer locks the call
// and reads it again.
func (d *Dialer) resolveCall(ctx context.Context, callID uuid.UUID) error {
	known, err := d.carrier.Find(ctx, callID)
	unknown := errors.Is(err, carrier.ErrUnknownCall)
	if err != nil && !unknown {
		return err
	}
	slog.WarnContext(
		ctx,
		"fenced call has no running attempt",
		"call_id",
		callID,
		"known_to_carrier",
		!unknown,
	)
	err = d.store.ChangeOnServer(ctx, []uuid.UUID{callID}, func(calls map[uuid.UUID]*callstate.Call) {
		c := calls[callID]
		switch {
		case c == nil || c.Status != callstate.Fenced:
		case unknown:
			c.Doubt()
		default:
			if known.DialedAt == nil {
				now := time.Now().UTC()
				known.DialedAt = &now
			}
			known.Replay(c, callstate.Zone(c.TimeZone, c.Person()))
		}
	})
	d.relay.Wake()
	return err
}
