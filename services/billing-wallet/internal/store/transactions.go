package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/billing-wallet/internal/ledger"
)

const transactionColumns = `id, workspace_id, kind, reference, operator, request_id, wallet_micro, held_micro, revenue_micro, funding_micro`

// readTransactions selects transactions. The column inbound is true if request_id is the id of an
// inbound call.
const readTransactions = `
SELECT ` + transactionColumns + `,
       coalesce((SELECT h.inbound FROM holds h WHERE h.request_id = transactions.request_id), false) AS inbound
FROM transactions`

const transactionByReference = readTransactions + `
WHERE workspace_id = @workspace_id AND reference = @reference`

// Pay posts a top-up or an adjustment. If the workspace has used the reference before, Pay returns
// the earlier transaction, and replayed is true. Pay returns ledger.ErrInsufficient or
// ledger.ErrTooLarge if the resulting balance is not permitted.
func (s *Store) Pay(ctx context.Context, t ledger.Transaction) (posted ledger.Transaction, replayed bool, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		wallet, err := s.lockWallet(ctx, tx, t.WorkspaceID)
		if err != nil {
			return err
		}
		posted, err = pg.One[ledger.Transaction](ctx, tx, transactionByReference,
			pgx.NamedArgs{"workspace_id": t.WorkspaceID, "reference": t.Reference})
		if err == nil {
			replayed = true
			return nil
		}
		if !errors.Is(err, pg.ErrNotFound) {
			return fmt.Errorf("look up reference: %w", err)
		}
		posted, replayed = t, false
		next, err := wallet.Post(t)
		if err != nil {
			return err
		}
		batch := &pgx.Batch{}
		queuePostings(batch, wallet, next, []ledger.Transaction{t})
		if err := queueLowBalance(ctx, batch, wallet, next); err != nil {
			return err
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return posted, replayed, fmt.Errorf("post %s to %s: %w", t.Kind, t.WorkspaceID, err)
	}
	return posted, replayed, nil
}

const insertTransactions = `
INSERT INTO transactions (` + transactionColumns + `)
SELECT t.id, @workspace_id, t.kind, t.reference, t.operator, t.request_id, t.wallet, t.held, t.revenue, t.funding
FROM unnest(@ids::uuid[], @kinds::text[], @references::text[], @operators::text[], @request_ids::uuid[],
            @wallet::bigint[], @held::bigint[], @revenue::bigint[], @funding::bigint[])
     AS t (id, kind, reference, operator, request_id, wallet, held, revenue, funding)`

const updateWallet = `
UPDATE wallets SET wallet_micro = @wallet, held_micro = @held, revenue_micro = @revenue, funding_micro = @funding,
       last_transaction_at = greatest(last_transaction_at, @moved_at)
WHERE workspace_id = @workspace_id`

func queuePostings(batch *pgx.Batch, wallet ledger.Wallet, next ledger.Accounts, posted []ledger.Transaction) {
	if len(posted) == 0 {
		return
	}
	n := len(posted)
	ids, kinds, requests := make([]uuid.UUID, n), make([]string, n), make([]*uuid.UUID, n)
	references, operators := make([]*string, n), make([]*string, n)
	wallets, held, revenue, funding := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	var moved *time.Time
	for i, t := range posted {
		ids[i], kinds[i], requests[i], references[i], operators[i] = t.ID, string(t.Kind), t.RequestID, t.Reference, t.Operator
		wallets[i], held[i], revenue[i], funding[i] = int64(t.Wallet), int64(t.Held), int64(t.Revenue), int64(t.Funding)
		if t.SetsLastTransactionAt() {
			at := t.CreatedAt()
			moved = &at
		}
	}
	batch.Queue(insertTransactions, pg.Args{
		"workspace_id": wallet.WorkspaceID, "ids": ids, "kinds": kinds, "references": references, "operators": operators,
		"request_ids": requests, "wallet": wallets, "held": held, "revenue": revenue, "funding": funding,
	})
	batch.Queue(updateWallet, pg.Args{
		"workspace_id": wallet.WorkspaceID, "wallet": int64(next.Wallet), "held": int64(next.Held),
		"revenue": int64(next.Revenue), "funding": int64(next.Funding), "moved_at": moved,
	})
}

const transactionByID = readTransactions + `
WHERE workspace_id = @workspace_id AND id = @id`

// Transaction reads one transaction. found is false if the workspace has no transaction with this
// id.
func (s *Store) Transaction(ctx context.Context, workspaceID, id uuid.UUID) (t ledger.Transaction, found bool, err error) {
	t, err = pg.One[ledger.Transaction](ctx, s.pool, transactionByID, pgx.NamedArgs{"workspace_id": workspaceID, "id": id})
	if errors.Is(err, pg.ErrNotFound) {
		return t, false, nil
	}
	if err != nil {
		return t, false, fmt.Errorf("read transaction %s: %w", id, err)
	}
	return t, true, nil
}

const transactionPage = readTransactions + `
WHERE workspace_id = @workspace_id
  AND (@kind = '' OR kind = @kind)
  AND (@after::uuid IS NULL OR id < @after)
ORDER BY id DESC
LIMIT @rows`

// Transactions lists a workspace's transactions, newest first. If kind is empty, transactions of
// all kinds are listed. Transactions returns page.UnknownCursor if the cursor is unknown.
func (s *Store) Transactions(ctx context.Context, workspaceID uuid.UUID, kind ledger.Kind,
	request page.Request) ([]ledger.Transaction, error) {
	var after *uuid.UUID
	if request.After != uuid.Nil {
		after = &request.After
		if _, found, err := s.Transaction(ctx, workspaceID, request.After); err != nil {
			return nil, err
		} else if !found {
			return nil, page.UnknownCursor()
		}
	}
	list, err := pg.Many[ledger.Transaction](ctx, s.pool, transactionPage, pgx.NamedArgs{
		"workspace_id": workspaceID, "kind": string(kind), "after": after, "rows": request.Rows(),
	})
	if err != nil {
		return nil, fmt.Errorf("list transactions of %s: %w", workspaceID, err)
	}
	return list, nil
}
