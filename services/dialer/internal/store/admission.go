package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/money"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

// Admission is the result of Admit.
type Admission struct {
	// Refused is true if the call was marked to be refused, because the workspace has reached its
	// maximum number of concurrent inbound calls.
	Refused bool
	// Priced is true if the call needs a hold. PerMinute and IncrementSeconds are the price.
	Priced           bool
	PerMinute        money.Micro
	IncrementSeconds int32
	MaxCallSeconds   int32
}

const (
	// The lock makes the admissions of a workspace run one after another, so that no limit is
	// exceeded.
	lockAdmissions = `
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' inbound ' || @workspace_id::text, 0))`

	// Answered calls are also counted, because earlier versions of the dialer did not set admitted.
	admissionOf = `
SELECT coalesce(w.inbound_per_minute_micro, 0) AS per_minute, coalesce(w.inbound_increment_seconds, 1) AS increment,
	coalesce(w.inbound_max_concurrent, @max_concurrent) AS max_concurrent, (
		SELECT count(*) FROM calls c
		WHERE c.workspace_id = @workspace_id AND c.direction = 'inbound' AND c.ended_at IS NULL AND ` + isCounted + `
			AND c.call_id <> @call_id AND (c.admitted OR c.answered_at IS NOT NULL)) AS live
FROM (SELECT @workspace_id::uuid AS id) AS one LEFT JOIN workspaces w ON w.workspace_id = one.id`
)

// Admit decides whether an inbound call may be answered. If the workspace has too many inbound
// calls, the call is marked to be refused. Otherwise the call counts until it ends or is refused.
//
// Admit also calls change. Admit can be repeated. live is false if the call has ended or is being
// ended.
func (s *Store) Admit(
	ctx context.Context, workspaceID, callID uuid.UUID, change func(*callstate.Call),
) (a Admission, live bool, err error) {
	args := pg.Args{
		"workspace_id": workspaceID, "call_id": callID, "max_concurrent": dialqueue.DefaultInboundConcurrent,
	}
	var maxConcurrent, inUse int64
	count := func(batch *pgx.Batch) {
		batch.Queue(lockAdmissions, args)
		batch.Queue(admissionOf, args).QueryRow(func(row pgx.Row) error {
			return row.Scan(&a.PerMinute, &a.IncrementSeconds, &maxConcurrent, &inUse)
		})
	}
	err = s.changeIf(ctx, count, []uuid.UUID{callID}, func(calls map[uuid.UUID]*callstate.Call) {
		c := calls[callID]
		if live = c != nil && c.Live() && c.Ending == callstate.EndingNone; !live {
			return
		}
		change(c)
		a.Refused, a.Priced, a.MaxCallSeconds = !c.Admitted && inUse >= maxConcurrent, c.Priced, c.MaxCallSeconds
		if a.Refused {
			c.Refuse()
			return
		}
		c.Admitted = true
	})
	if err != nil {
		return a, live, fmt.Errorf("admit inbound call %s: %w", callID, err)
	}
	return a, live, nil
}

const lockOwnedCall = `SELECT call_id FROM calls WHERE call_id = @call_id AND owner = @instance FOR UPDATE`

// RefuseOwned marks an inbound call that was not answered to be refused as busy. It has no effect
// if this process is not the owner of the call: another process has claimed the call since, and has
// possibly made the hold and answered the call.
func (s *Store) RefuseOwned(ctx context.Context, callID uuid.UUID) (refused bool, err error) {
	owned := RowGuard(lockOwnedCall, pg.Args{"call_id": callID, "instance": s.instance})
	err = s.changeIf(ctx, owned, []uuid.UUID{callID}, func(calls map[uuid.UUID]*callstate.Call) {
		if c := calls[callID]; c != nil {
			c.Refuse()
			refused = c.Ending == callstate.EndingBusy
		}
	})
	if errors.Is(err, ErrLost) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("refuse inbound call %s: %w", callID, err)
	}
	return refused, nil
}

const inboundCall = `
SELECT EXISTS (SELECT FROM calls WHERE call_id = @call_id AND workspace_id = @workspace_id) AS known,
	` + refreshed + ` AS complete`

// This statement locks no row, to prevent deadlocks between transactions that read the same calls
// in different order. A call that ends during the transaction publishes its own end.
const readInboundCall = `SELECT ` + callColumns + ` FROM calls
WHERE call_id = @call_id AND direction = 'inbound' AND (@test::boolean IS NULL OR test = @test)`

// ReportInbound publishes the end of an inbound call again, because billing-wallet has received no
// end. It publishes nothing for a live call.
//
// For an unknown call, ReportInbound publishes CallUnknown, but only if refreshPeriod has passed
// since the reconciliation. Until then, a process can still store the call again. reported is true
// if an event was published.
func (s *Store) ReportInbound(
	ctx context.Context, tx pgx.Tx, workspaceID, callID uuid.UUID,
) (reported bool, err error) {
	var known, complete bool
	args := pg.Args{
		"call_id": callID, "workspace_id": workspaceID, "server": s.server(), "refresh_period": refreshPeriod,
	}
	if err := tx.QueryRow(ctx, inboundCall, args).Scan(&known, &complete); err != nil {
		return false, fmt.Errorf("find inbound call %s: %w", callID, err)
	}
	var facts []callstate.Fact
	switch {
	case known:
		found, err := pg.Many[callstate.Call](ctx, tx, readInboundCall, pg.Args{"call_id": callID, "test": s.modes.Test()})
		if err != nil {
			return false, fmt.Errorf("read inbound call %s: %w", callID, err)
		}
		if len(found) == 1 && !found[0].Live() {
			found[0].Priced = true // the hold exists, even if this row was restored without the price
			facts = append(facts, found[0].EndedAgain())
		}
	case complete:
		facts = append(facts, callstate.NewCallUnknown(callID, workspaceID))
	}
	if len(facts) == 0 {
		return false, nil
	}
	var batch pgx.Batch
	if err := queueTraced(ctx, &batch, "call events", "", facts...); err != nil {
		return false, err
	}
	return true, sendBatch(ctx, tx, &batch)
}
