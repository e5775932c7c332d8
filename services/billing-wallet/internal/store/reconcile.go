package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/services/billing-wallet/internal/ledger"
)

// Books are a workspace's balances from three sides, read in one snapshot.
type Books struct {
	Kept ledger.Wallet
	// Summed are the journal's entries by account.
	Summed ledger.Accounts
	// Unbalanced counts transactions that do not sum to zero.
	Unbalanced int64
	// Open is what the open holds come to, as an amount of the held account.
	Open ledger.Accounts
	// Unmatched counts settled holds without their capture or release in the journal, or with another amount.
	Unmatched int64
}

// Agree says that every side tells the same.
func (b Books) Agree() bool {
	return b.Kept.Accounts == b.Summed && b.Summed.Sum() == 0 && b.Kept.Held == b.Open.Held && b.Unbalanced == 0 && b.Unmatched == 0
}

const sumEntries = `
SELECT coalesce(sum(wallet_micro), 0)::bigint AS wallet_micro, coalesce(sum(held_micro), 0)::bigint AS held_micro,
       coalesce(sum(revenue_micro), 0)::bigint AS revenue_micro, coalesce(sum(funding_micro), 0)::bigint AS funding_micro
FROM transactions WHERE workspace_id = @workspace_id`

const sumOpenHolds = `
SELECT 0::bigint AS wallet_micro, coalesce(sum(amount_micro), 0)::bigint AS held_micro,
       0::bigint AS revenue_micro, 0::bigint AS funding_micro
FROM holds WHERE workspace_id = @workspace_id AND state = 'held'`

const countUnbalanced = `
SELECT count(*) FROM (SELECT transaction_id FROM entries WHERE workspace_id = @workspace_id
                      GROUP BY transaction_id HAVING sum(amount_micro) <> 0) AS unbalanced`

const countUnmatched = `
SELECT count(*) FROM holds h
LEFT JOIN transactions t ON t.request_id = h.request_id AND t.kind IN ('capture', 'release')
WHERE h.workspace_id = @workspace_id AND CASE h.state
    WHEN 'held' THEN t.id IS NOT NULL
    ELSE t.id IS NULL OR t.held_micro <> -h.amount_micro OR t.revenue_micro <> coalesce(h.captured_micro, 0) END`

// Books reads the balances of one workspace for a reconciliation; ErrNoWallet when it has none.
func (s *Store) Books(ctx context.Context, workspaceID uuid.UUID) (books Books, err error) {
	args := pgx.NamedArgs{"workspace_id": workspaceID}
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, s.pool, snapshot, func(tx pgx.Tx) error {
		var kept []ledger.Wallet
		var summed, open []ledger.Accounts
		batch := &pgx.Batch{}
		batch.Queue(walletOf, args).Query(into(&kept))
		batch.Queue(sumEntries, args).Query(into(&summed))
		batch.Queue(sumOpenHolds, args).Query(into(&open))
		batch.Queue(countUnbalanced, args).QueryRow(func(row pgx.Row) error { return row.Scan(&books.Unbalanced) })
		batch.Queue(countUnmatched, args).QueryRow(func(row pgx.Row) error { return row.Scan(&books.Unmatched) })
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		if len(kept) == 0 {
			return ErrNoWallet
		}
		books.Kept, books.Summed, books.Open = kept[0], summed[0], open[0]
		return nil
	})
	if err != nil {
		return books, fmt.Errorf("read books of %s: %w", workspaceID, err)
	}
	return books, nil
}
