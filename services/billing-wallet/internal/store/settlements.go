package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"ringfence.dev/libs/failpoint"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/billing-wallet/internal/holds"
	"ringfence.dev/services/billing-wallet/internal/ledger"
)

const insertPending = `
INSERT INTO pending_settlements (workspace_id, request_id, reason, billable_seconds, call_id, traceparent)
VALUES (@workspace_id, @request_id, @reason, @billable_seconds, @call_id, @traceparent)`

// EnqueueOutcome stores outcomes for Settle, in the transaction that applies the events of the
// outcomes. It locks no wallet.
func (s *Store) EnqueueOutcome(ctx context.Context, tx pgx.Tx, outcomes ...holds.Outcome) error {
	var batch pgx.Batch
	for _, v := range outcomes {
		batch.Queue(insertPending, outcomeArgs(v))
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("enqueue %d outcomes: %w", len(outcomes), err)
	}
	return nil
}

// insertPendingIfHeld excludes the final states for the same reason as confirmHold.
const insertPendingIfHeld = `
INSERT INTO pending_settlements (workspace_id, request_id, reason, billable_seconds, call_id, traceparent)
SELECT @workspace_id, h.request_id, @reason, @billable_seconds::integer, @call_id::uuid, @traceparent
FROM holds h
WHERE h.request_id = @request_id AND h.state NOT IN ('captured', 'released')`

// EnqueueIfHeld stores outcomes like EnqueueOutcome. It does not store an outcome whose hold is
// settled or unknown. It is used for events that normally arrive after the settlement. stored[i] is
// true if outcomes[i] was stored.
func (s *Store) EnqueueIfHeld(ctx context.Context, tx pgx.Tx, outcomes ...holds.Outcome) (stored []bool, err error) {
	var batch pgx.Batch
	stored = make([]bool, len(outcomes))
	for i, v := range outcomes {
		batch.Queue(insertPendingIfHeld, outcomeArgs(v)).Exec(setChanged(&stored[i]))
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, fmt.Errorf("enqueue %d outcomes on open holds: %w", len(outcomes), err)
	}
	return stored, nil
}

// setChanged returns a batch callback that sets *result to true if the statement changed a row, and
// to false if not.
func setChanged(result *bool) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		*result = tag.RowsAffected() > 0
		return nil
	}
}

func outcomeArgs(v holds.Outcome) pg.Args {
	return pg.Args{
		"workspace_id": v.WorkspaceID, "request_id": v.RequestID, "reason": string(v.Reason),
		"billable_seconds": v.BillableSeconds, "call_id": v.CallID, "traceparent": v.Traceparent,
	}
}

const (
	// The inner query reads the index of the column id, starting at the floor (the lowest id that
	// is read).
	workspacesWithPending = `
WITH waiting AS MATERIALIZED (SELECT id, workspace_id,
	created_at FROM pending_settlements WHERE id >= @floor ORDER BY id)
SELECT workspace_id, extract(epoch FROM now() - min(created_at))::double precision AS waited_seconds,
       min(id) AS first_id, max(id) AS last_id
FROM waiting GROUP BY workspace_id`

	oldestTransaction = `SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint`
	takeTransactionID = `SELECT pg_current_xact_id()::text::bigint`
)

// Unsettled is a workspace with pending settlements.
type Unsettled struct {
	WorkspaceID uuid.UUID
	// WaitedSeconds is the age of the oldest pending settlement.
	WaitedSeconds float64
	// FirstID and LastID are the lowest and the highest id of the workspace's pending settlements.
	FirstID int64
	LastID  int64
}

// Unsettled lists the workspaces with pending settlements. It reads the ids from the floor upwards.
// Once a minute it reads all ids.
func (s *Store) Unsettled(ctx context.Context) ([]Unsettled, error) {
	now := time.Now()
	from, sweep := s.floor.readStart(now)
	list, xmin, err := s.unsettled(ctx, from)
	if err != nil {
		return nil, fmt.Errorf("list workspaces to settle: %w", err)
	}
	if sweep {
		s.floor.sweptAt(now)
	}
	var first, last int64
	for _, waiting := range list {
		if first == 0 || waiting.FirstID < first {
			first = waiting.FirstID
		}
		last = max(last, waiting.LastID)
	}
	if candidate := s.floor.recordRead(first, last, xmin); candidate > 0 {
		var takenBy int64
		if err := s.pool.QueryRow(ctx, takeTransactionID).Scan(&takenBy); err != nil {
			return nil, fmt.Errorf("take a transaction id: %w", err)
		}
		s.floor.planIncrease(candidate, takenBy)
	}
	return list, nil
}

// unsettled reads the pending settlements with ids of at least from. All transactions with ids
// below xmin had ended before the read.
func (s *Store) unsettled(ctx context.Context, from int64) (list []Unsettled, xmin int64, err error) {
	var batch pgx.Batch
	batch.Queue(oldestTransaction).QueryRow(func(row pgx.Row) error { return row.Scan(&xmin) })
	batch.Queue(workspacesWithPending, pg.Args{"floor": from}).Query(collectInto(&list))
	err = s.pool.SendBatch(ctx, &batch).Close()
	return list, xmin, err
}

// Settlement is the result of one outcome.
type Settlement struct {
	Outcome holds.Outcome
	// Hold is the hold after the settlement. If the hold is unknown, only its ids are set.
	Hold holds.Hold
	// Late is the kind of a late outcome, which changed nothing. For any other outcome, Late is
	// holds.NotLate.
	Late holds.Late
	// TransactionID is the id of the capture or release. It is the nil UUID for a late outcome.
	TransactionID uuid.UUID
}

const claimPending = `
SELECT id, workspace_id, request_id, reason, billable_seconds, call_id, traceparent,
       extract(epoch FROM now() - created_at)::double precision AS waited_seconds
FROM pending_settlements
WHERE workspace_id = @workspace_id AND id >= @floor
ORDER BY id
LIMIT @limit
FOR UPDATE SKIP LOCKED`

const deletePending = `DELETE FROM pending_settlements WHERE id = ANY(@ids)`

// Settle settles up to limit outcomes of a workspace in one commit. Each hold is settled once, and
// later outcomes of the hold are returned as late. queueEvents adds the events to the batch that
// writes the rows. An empty result means that no outcome is pending.
func (s *Store) Settle(ctx context.Context, workspaceID uuid.UUID, limit int, queueEvents func(*pgx.Batch,
	[]Settlement) error) (done []Settlement, err error) {
	floor := s.floor.lowest()
	err = pg.InPipeline(ctx, s.pool, func(tx *pg.Pipeline) error {
		var outcomes []holds.Outcome
		waiting := &pgx.Batch{}
		waiting.Queue(claimPending, pg.Args{"workspace_id": workspaceID, "limit": limit, "floor": floor}).
			Query(collectInto(&outcomes))
		if err := tx.RunBatch(ctx, waiting); err != nil {
			return fmt.Errorf("claim outcomes: %w", err)
		}
		done = nil
		if len(outcomes) == 0 {
			return nil
		}
		wallet, known, err := s.lockHolds(ctx, tx, workspaceID, outcomes)
		if err != nil {
			return err
		}
		batch := &pgx.Batch{}
		if done, err = settleOutcomes(ctx, batch, wallet, known, outcomes); err != nil {
			return err
		}
		if err := queueEvents(batch, done); err != nil {
			return err
		}
		tx.QueueBatch(batch)
		failpoint.Inject("billing-wallet: before settle commit")
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("settle workspace %s: %w", workspaceID, err)
	}
	return done, nil
}

// lockHolds locks the wallet and reads the holds of the outcomes. The holds need no lock, because
// only the transaction that has locked the wallet settles them. A workspace without a wallet has no
// holds.
func (s *Store) lockHolds(ctx context.Context, tx *pg.Pipeline, workspaceID uuid.UUID,
	outcomes []holds.Outcome) (ledger.Wallet, map[uuid.UUID]holds.Hold, error) {
	requests := make([]uuid.UUID, 0, len(outcomes))
	for _, v := range outcomes {
		requests = append(requests, v.RequestID)
	}
	var wallets []ledger.Wallet
	var found []holds.Hold
	batch := &pgx.Batch{}
	batch.Queue(lockWallet, pg.Args{"workspace_id": workspaceID}).Query(collectInto(&wallets))
	// This query follows the statement that locks the wallet. So it also reads the rows that the
	// previous owner of the lock committed.
	batch.Queue(holdsByRequest, pg.Args{"request_ids": requests}).Query(collectInto(&found))
	if err := tx.RunBatch(ctx, batch); err != nil {
		return ledger.Wallet{}, nil, fmt.Errorf("lock wallet and read holds: %w", err)
	}
	if len(wallets) == 0 {
		return ledger.Wallet{}, nil, nil
	}
	known := make(map[uuid.UUID]holds.Hold, len(found))
	for _, h := range found {
		if h.WorkspaceID == workspaceID {
			known[h.RequestID] = h
		}
	}
	return wallets[0], known, nil
}

const settleHolds = `
UPDATE holds SET state = s.state, captured_micro = s.captured, call_id = s.call_id, settled_at = now()
FROM unnest(@request_ids::uuid[], @states::text[], @captured::bigint[], @call_ids::uuid[]) AS s (request_id, state, captured, call_id)
WHERE holds.request_id = s.request_id AND holds.state = 'held'`

// settleOutcomes settles the holds in the order of the outcomes.
func settleOutcomes(ctx context.Context, batch *pgx.Batch, wallet ledger.Wallet, known map[uuid.UUID]holds.Hold,
	outcomes []holds.Outcome) ([]Settlement, error) {
	var (
		done     []Settlement
		posted   []ledger.Transaction
		balances = wallet.Accounts
		ids      = make([]int64, 0, len(outcomes))
		requests []uuid.UUID
		states   []string
		captured []*int64
		callIDs  []*uuid.UUID
	)
	for _, v := range outcomes {
		ids = append(ids, v.ID)
		h, ok := known[v.RequestID]
		if !ok {
			done = append(done, Settlement{Outcome: v, Hold: holds.Hold{RequestID: v.RequestID, WorkspaceID: v.WorkspaceID},
				Late: holds.UnknownHold})
			continue
		}
		settled, late := h.Settle(v)
		if late != holds.NotLate {
			done = append(done, Settlement{Outcome: v, Hold: settled, Late: late})
			continue
		}
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("make transaction id: %w", err)
		}
		t := ledger.Settled(id, h.WorkspaceID, h.RequestID, h.Amount, settled.Charged())
		if balances, err = balances.Post(t); err != nil {
			return nil, fmt.Errorf("post %s of %s: %w", t.Kind, h.RequestID, err)
		}
		known[v.RequestID] = settled
		posted, done = append(posted, t), append(done, Settlement{Outcome: v, Hold: settled, TransactionID: id})
		requests, states = append(requests, h.RequestID), append(states, string(settled.State))
		captured, callIDs = append(captured, (*int64)(settled.Captured)), append(callIDs, settled.CallID)
	}
	batch.Queue(deletePending, pg.Args{"ids": ids})
	if len(posted) > 0 {
		batch.Queue(settleHolds, pg.Args{"request_ids": requests, "states": states, "captured": captured, "call_ids": callIDs})
		queuePostings(batch, wallet, balances, posted)
		if err := queueLowBalance(ctx, batch, wallet, balances); err != nil {
			return nil, err
		}
	}
	return done, nil
}
