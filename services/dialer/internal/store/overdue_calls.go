package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

// A request that has not ended can have another call, or can still be dialed.
const hasOpenRequest = `
SELECT EXISTS (SELECT FROM dial_queue WHERE call_request_id = @call_request_id AND ended_at IS NULL FOR UPDATE)`

// EndOverdueCall handles a call about which the service `calls` asked at reportedAt, because it had
// received no end of the call.
//
// If the call ended more than dialqueue.MaxEndDelay before reportedAt, EndOverdueCall publishes the
// terminal event again. If the database does not have the call, EndOverdueCall publishes an end
// with the cause unspecified. The call is then not charged. The database can lack a call after a
// failover, if the process of the call also ended.
//
// EndOverdueCall changes nothing while the call, or the request of the call, is in progress. It
// also changes nothing until the database server was reconciled and the processes had time to store
// their calls again. The service `calls` then asks again.
func (s *Store) EndOverdueCall(
	ctx context.Context, tx pgx.Tx, reported callstate.Call, reportedAt time.Time,
) (dialqueue.Found, error) {
	var reconciled bool
	args := pg.Args{"server": s.server(), "refresh_period": refreshPeriod}
	if err := tx.QueryRow(ctx, `SELECT `+refreshed, args).Scan(&reconciled); err != nil {
		return "", fmt.Errorf("read the reconciled server: %w", err)
	}
	if !reconciled {
		return dialqueue.Waiting, nil
	}
	known, err := pg.Many[callstate.Call](ctx, tx, lockCalls, pg.Args{"ids": []uuid.UUID{reported.CallID}, "test": nil})
	if err != nil {
		return "", fmt.Errorf("lock overdue call %s: %w", reported.CallID, err)
	}
	if len(known) > 0 && known[0].Status != callstate.Void {
		c := &known[0]
		if c.Live() || !c.EndedAt.Before(reportedAt.Add(-dialqueue.MaxEndDelay)) {
			return dialqueue.Waiting, nil
		}
		return dialqueue.Over, outbox.Put(ctx, tx, outboxEvents(c.EndedAgain())...)
	}
	if reported.CallRequestID != nil {
		var open bool
		args := pg.Args{"call_request_id": *reported.CallRequestID}
		if err := tx.QueryRow(ctx, hasOpenRequest, args).Scan(&open); err != nil {
			return "", fmt.Errorf("lock the request of overdue call %s: %w", reported.CallID, err)
		}
		if open {
			return dialqueue.Waiting, nil
		}
	}
	reported.Ending, reported.Version = callstate.EndingLost, max(reported.Version, restoredVersion)
	reported.End(callstate.EndingLost.Unheard(reportedAt))
	return dialqueue.Lost, outbox.Put(ctx, tx, outboxEvents(reported.Facts()...)...)
}
