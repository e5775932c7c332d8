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
	holdspkg "ringfence.dev/services/billing-wallet/internal/holds"
	"ringfence.dev/services/billing-wallet/internal/ledger"
)

const insertVerdict = `
INSERT INTO pending_settlements (workspace_id, request_id, reason, billable_seconds, call_id, traceparent)
VALUES (@workspace_id, @request_id, @reason, @billable_seconds, @call_id, @traceparent)`

// EnqueueOutcome stores verdicts for Settle, in the transaction that applies their events. It locks no wallet.
func (s *Store) EnqueueOutcome(ctx context.Context, tx pgx.Tx, verdicts ...holdspkg.Outcome) error {
	var batch pgx.Batch
	for _, v := range verdicts {
		batch.Queue(insertVerdict, verdictArgs(v))
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("note %d verdicts: %w", len(verdicts), err)
	}
	return nil
}

// The condition names the final states, as in confirmHold: a condition on 'held' can be planned as a
// walk through a partial index.
const insertVerdictIfHeld = `
INSERT INTO pending_settlements (workspace_id, request_id, reason, billable_seconds, call_id, traceparent)
SELECT @workspace_id, h.request_id, @reason, @billable_seconds::integer, @call_id::uuid, @traceparent
FROM holds h
WHERE h.request_id = @request_id AND h.state NOT IN ('captured', 'released')`

// NoteIfHeld is Note for events that normally follow the settlement. It stores nothing if the hold is
// settled or unknown, and returns for each verdict whether it was stored.
func (s *Store) NoteIfHeld(ctx context.Context, tx pgx.Tx, verdicts ...holdspkg.Outcome) (stored []bool, err error) {
	var batch pgx.Batch
	stored = make([]bool, len(verdicts))
	for i, v := range verdicts {
		batch.Queue(insertVerdictIfHeld, verdictArgs(v)).Exec(changed(&stored[i]))
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, fmt.Errorf("note %d verdicts on open holds: %w", len(verdicts), err)
	}
	return stored, nil
}

// changed returns a batch callback that sets *into to whether the statement changed a row.
func changed(into *bool) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		*into = tag.RowsAffected() > 0
		return nil
	}
}

func verdictArgs(v holdspkg.Outcome) pg.Args {
	return pg.Args{
		"workspace_id": v.WorkspaceID, "request_id": v.RequestID, "reason": string(v.Reason),
		"billable_seconds": v.BillableSeconds, "call_id": v.CallID, "traceparent": v.Traceparent,
	}
}

const (
	// The inner query reads the index of id from the floor on.
	workspacesWithVerdicts = `
WITH waiting AS MATERIALIZED (SELECT id, workspace_id, created_at FROM pending_settlements WHERE id >= @floor ORDER BY id)
SELECT workspace_id, extract(epoch FROM now() - min(created_at))::double precision AS waited_seconds,
       min(id) AS first_id, max(id) AS last_id
FROM waiting GROUP BY workspace_id`

	oldestTransaction = `SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint`
	takeTransactionID = `SELECT pg_current_xact_id()::text::bigint`
)

// Unsettled is a workspace that has verdicts waiting.
type Unsettled struct {
	WorkspaceID uuid.UUID
	// WaitedSeconds is how long the oldest has waited.
	WaitedSeconds float64
	// FirstID and LastID are the lowest and the highest id of its verdicts.
	FirstID int64
	LastID  int64
}

// Unsettled lists the workspaces that have verdicts waiting. It reads from the floor on, and once a minute
// from the first row.
func (s *Store) Unsettled(ctx context.Context) ([]Unsettled, error) {
	now := time.Now()
	from, sweep := s.floor.from(now)
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
	if candidate := s.floor.read(first, last, xmin); candidate > 0 {
		var takenBy int64
		if err := s.pool.QueryRow(ctx, takeTransactionID).Scan(&takenBy); err != nil {
			return nil, fmt.Errorf("take a transaction id: %w", err)
		}
		s.floor.wait(candidate, takenBy)
	}
	return list, nil
}

// unsettled reads verdicts from an id on. Transactions with ids below xmin had ended before the read.
func (s *Store) unsettled(ctx context.Context, from int64) (list []Unsettled, xmin int64, err error) {
	var batch pgx.Batch
	batch.Queue(oldestTransaction).QueryRow(func(row pgx.Row) error { return row.Scan(&xmin) })
	batch.Queue(workspacesWithVerdicts, pg.Args{"floor": from}).Query(into(&list))
	err = s.pool.SendBatch(ctx, &batch).Close()
	return list, xmin, err
}

// Settlement is what one verdict came to.
type Settlement struct {
	Verdict holdspkg.Outcome
	// Hold is as it stands now; of an unknown one only the ids are set.
	Hold holdspkg.Hold
	// Late is set when the verdict changed nothing.
	Late holdspkg.Late
	// TransactionID is the capture's or release's; nil when late.
	TransactionID uuid.UUID
}

const claimVerdicts = `
SELECT id, workspace_id, request_id, reason, billable_seconds, call_id, traceparent,
       extract(epoch FROM now() - created_at)::double precision AS waited_seconds
FROM pending_settlements
WHERE workspace_id = @workspace_id AND id >= @floor
ORDER BY id
LIMIT @most
FOR UPDATE SKIP LOCKED`

const deleteVerdicts = `DELETE FROM pending_settlements WHERE id = ANY(@ids)`

// Settle posts up to most of a workspace's verdicts in one commit, each hold once, whatever came before. publish adds
// the events of what was settled to the batch that writes it. An empty answer: nothing waits.
func (s *Store) Settle(ctx context.Context, workspaceID uuid.UUID, most int, publish func(*pgx.Batch, []Settlement) error) (done []Settlement, err error) {
	floor := s.floor.lowest()
	err = pg.InPipeline(ctx, s.pool, func(tx *pg.Pipeline) error {
		var verdicts []holdspkg.Outcome
		waiting := &pgx.Batch{}
		waiting.Queue(claimVerdicts, pg.Args{"workspace_id": workspaceID, "most": most, "floor": floor}).
			Query(into(&verdicts))
		if err := tx.Ask(ctx, waiting); err != nil {
			return fmt.Errorf("claim verdicts: %w", err)
		}
		done = nil
		if len(verdicts) == 0 {
			return nil
		}
		wallet, known, err := s.lockHolds(ctx, tx, workspaceID, verdicts)
		if err != nil {
			return err
		}
		batch := &pgx.Batch{}
		if done, err = decide(batch, wallet, known, verdicts); err != nil {
			return err
		}
		if err := publish(batch, done); err != nil {
			return err
		}
		tx.LaterAll(batch)
		failpoint.Inject("billing-wallet: before settle commit")
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("settle workspace %s: %w", workspaceID, err)
	}
	return done, nil
}

// lockHolds locks the wallet and reads the verdicts' holds of this workspace, which only the wallet's holder settles.
// Without a wallet there are none.
func (s *Store) lockHolds(ctx context.Context, tx *pg.Pipeline, workspaceID uuid.UUID, verdicts []holdspkg.Outcome) (ledger.Wallet, map[uuid.UUID]holdspkg.Hold, error) {
	requests := make([]uuid.UUID, 0, len(verdicts))
	for _, v := range verdicts {
		requests = append(requests, v.RequestID)
	}
	var wallets []ledger.Wallet
	var holds []holdspkg.Hold
	batch := &pgx.Batch{}
	batch.Queue(lockWallet, pg.Args{"workspace_id": workspaceID}).Query(into(&wallets))
	// After the lock, so that it sees what the holder before us committed.
	batch.Queue(holdsByRequest, pg.Args{"request_ids": requests}).Query(into(&holds))
	if err := tx.Ask(ctx, batch); err != nil {
		return ledger.Wallet{}, nil, fmt.Errorf("lock wallet and read holds: %w", err)
	}
	if len(wallets) == 0 {
		return ledger.Wallet{}, nil, nil
	}
	known := make(map[uuid.UUID]holdspkg.Hold, len(holds))
	for _, h := range holds {
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

// decide settles the verdicts in their order and queues what is to be written.
func decide(batch *pgx.Batch, wallet ledger.Wallet, known map[uuid.UUID]holdspkg.Hold, verdicts []holdspkg.Outcome) ([]Settlement, error) {
	var (
		done     []Settlement
		posted   []ledger.Transaction
		balances = wallet.Accounts
		ids      = make([]int64, 0, len(verdicts))
		requests []uuid.UUID
		states   []string
		captured []*int64
		callIDs  []*uuid.UUID
	)
	for _, v := range verdicts {
		ids = append(ids, v.ID)
		h, ok := known[v.RequestID]
		if !ok {
			done = append(done, Settlement{Verdict: v, Hold: holdspkg.Hold{RequestID: v.RequestID, WorkspaceID: v.WorkspaceID}, Late: holdspkg.UnknownHold})
			continue
		}
		settled, late := h.Settle(v)
		if late != holdspkg.NotLate {
			done = append(done, Settlement{Verdict: v, Hold: settled, Late: late})
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
		posted, done = append(posted, t), append(done, Settlement{Verdict: v, Hold: settled, TransactionID: id})
		requests, states = append(requests, h.RequestID), append(states, string(settled.State))
		captured, callIDs = append(captured, (*int64)(settled.Captured)), append(callIDs, settled.CallID)
	}
	batch.Queue(deleteVerdicts, pg.Args{"ids": ids})
	if len(posted) > 0 {
		batch.Queue(settleHolds, pg.Args{"request_ids": requests, "states": states, "captured": captured, "call_ids": callIDs})
		queuePostings(batch, wallet, balances, posted)
	}
	return done, nil
}
