package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/billing-wallet/internal/ledger"
)

// Books are the balances of a workspace, computed in three ways from one snapshot: the stored
// balances, the sums of the entries, and the sum of the open holds.
type Books struct {
	Kept ledger.Wallet
	// Summed are the sums of the ledger's entries.
	Summed ledger.Accounts
	// Open contains the sum of the open holds in Open.Held. The other accounts of Open are 0.
	Open ledger.Accounts
	// Differences are the inconsistencies between balances, transactions and holds.
	Differences []ledger.Difference
}

// Agree reports whether there are no differences.
func (b Books) Agree() bool { return len(b.Differences) == 0 }

const sumEntries = `
SELECT coalesce(sum(wallet_micro), 0)::bigint AS wallet_micro, coalesce(sum(held_micro), 0)::bigint AS held_micro,
       coalesce(sum(revenue_micro), 0)::bigint AS revenue_micro, coalesce(sum(funding_micro), 0)::bigint AS funding_micro
FROM transactions WHERE workspace_id = @workspace_id`

const sumOpenHolds = `
SELECT 0::bigint AS wallet_micro, coalesce(sum(amount_micro), 0)::bigint AS held_micro,
       0::bigint AS revenue_micro, 0::bigint AS funding_micro
FROM holds WHERE workspace_id = @workspace_id AND state = 'held'`

// differingBalances computes the amounts as numeric values in credits, because a sum of wrong rows
// can be too large for bigint.
const differingBalances = `
SELECT @workspace_id::uuid AS workspace_id, d.kind, d.subject,
       trim_scale(d.kept * 0.000001)::text AS kept, trim_scale(d.found * 0.000001)::text AS found
FROM (SELECT wallet_micro, held_micro, revenue_micro, funding_micro FROM wallets WHERE workspace_id = @workspace_id) AS w
CROSS JOIN (SELECT coalesce(sum(wallet_micro), 0) AS wallet, coalesce(sum(held_micro), 0) AS held,
                   coalesce(sum(revenue_micro), 0) AS revenue, coalesce(sum(funding_micro), 0) AS funding
            FROM transactions WHERE workspace_id = @workspace_id) AS entries
CROSS JOIN (SELECT coalesce(sum(amount_micro), 0) AS held FROM holds WHERE workspace_id = @workspace_id AND state = 'held') AS open
CROSS JOIN LATERAL (VALUES
    ('wrong_balance', 'wallet', w.wallet_micro <> entries.wallet, w.wallet_micro::numeric, entries.wallet),
    ('wrong_balance', 'held', w.held_micro <> entries.held, w.held_micro, entries.held),
    ('wrong_balance', 'revenue', w.revenue_micro <> entries.revenue, w.revenue_micro, entries.revenue),
    ('wrong_balance', 'funding', w.funding_micro <> entries.funding, w.funding_micro, entries.funding),
    ('unbalanced_wallet', 'all accounts', w.wallet_micro::numeric + w.held_micro + w.revenue_micro + w.funding_micro <> 0,
     w.wallet_micro::numeric + w.held_micro + w.revenue_micro + w.funding_micro, 0),
    ('negative_balance', 'wallet', w.wallet_micro < 0, w.wallet_micro, entries.wallet),
    ('negative_balance', 'held', w.held_micro < 0, w.held_micro, entries.held),
    ('negative_balance', 'revenue', w.revenue_micro < 0, w.revenue_micro, entries.revenue),
    ('held_is_not_holds', 'held', w.held_micro <> open.held, w.held_micro, open.held)
) AS d (kind, subject, differs, kept, found)
WHERE d.differs`

const differingTransactions = `
SELECT t.workspace_id, d.kind, t.id::text AS subject, d.kept, d.found
FROM transactions t
CROSS JOIN LATERAL (VALUES
    ('unbalanced_transaction', t.wallet_micro::numeric + t.held_micro + t.revenue_micro + t.funding_micro <> 0,
     trim_scale((t.wallet_micro::numeric + t.held_micro + t.revenue_micro + t.funding_micro) * 0.000001)::text, '0'),
    ('misshapen_transaction', NOT CASE t.kind
        WHEN 'top_up'     THEN t.wallet_micro > 0 AND t.held_micro = 0 AND t.revenue_micro = 0
        WHEN 'adjustment' THEN t.wallet_micro <> 0 AND t.held_micro = 0 AND t.revenue_micro = 0
        WHEN 'hold'       THEN t.held_micro >= 0 AND t.revenue_micro = 0 AND t.funding_micro = 0
        WHEN 'capture'    THEN t.held_micro < 0 AND t.wallet_micro >= 0 AND t.revenue_micro > 0 AND t.funding_micro = 0
        WHEN 'release'    THEN t.held_micro <= 0 AND t.revenue_micro = 0 AND t.funding_micro = 0
        ELSE false END
     OR CASE WHEN t.kind IN ('top_up', 'adjustment') THEN t.reference IS NULL OR t.operator IS NULL OR t.request_id IS NOT NULL
        ELSE t.request_id IS NULL END,
     t.kind, concat_ws(' ', 'wallet', t.wallet_micro, 'held', t.held_micro, 'revenue', t.revenue_micro, 'funding', t.funding_micro))
) AS d (kind, differs, kept, found)
WHERE t.workspace_id = @workspace_id AND d.differs
UNION ALL
SELECT @workspace_id, 'reference_twice', reference, 'once', count(*) || ' times' FROM transactions
WHERE workspace_id = @workspace_id AND reference IS NOT NULL
GROUP BY reference HAVING count(*) > 1`

const differingHolds = `
WITH posted AS (
    SELECT request_id, count(*) AS transactions,
           count(*) FILTER (WHERE kind = 'hold') AS holds, sum(held_micro) FILTER (WHERE kind = 'hold') AS held,
           count(*) FILTER (WHERE kind IN ('capture', 'release')) AS ends, max(kind) FILTER (WHERE kind IN ('capture', 'release')) AS ended,
           -sum(held_micro) FILTER (WHERE kind IN ('capture', 'release')) AS released,
           sum(revenue_micro) FILTER (WHERE kind IN ('capture', 'release')) AS charged
    FROM transactions
    WHERE workspace_id = @workspace_id AND request_id IS NOT NULL
    GROUP BY request_id),
kept AS (
    SELECT h.request_id, h.state, h.amount_micro AS amount, coalesce(h.captured_micro, 0) AS captured, h.currency, w.currency AS wanted
    FROM holds h LEFT JOIN wallets w ON w.workspace_id = h.workspace_id
    WHERE h.workspace_id = @workspace_id)
SELECT @workspace_id::uuid AS workspace_id, d.kind, request_id::text AS subject, d.kept, d.found
FROM posted FULL JOIN kept USING (request_id)
CROSS JOIN LATERAL (VALUES
    ('transaction_without_hold', kept.state IS NULL, 'no hold', posted.transactions || ' transactions'),
    ('hold_without_transaction', kept.state IS NOT NULL AND coalesce(posted.holds, 0) = 0,
        trim_scale(kept.amount * 0.000001)::text, 'nothing'),
    ('held_twice', posted.holds > 1, 'once', posted.holds || ' times'),
    ('wrong_hold', posted.holds = 1 AND posted.held <> kept.amount,
        trim_scale(kept.amount * 0.000001)::text, trim_scale(posted.held * 0.000001)::text),
    ('settled_without_transaction', kept.state <> 'held' AND coalesce(posted.ends, 0) = 0, kept.state, 'nothing'),
    ('open_but_settled', kept.state = 'held' AND posted.ends > 0, kept.state, posted.ended),
    ('settled_twice', posted.ends > 1, 'once', posted.ends || ' times'),
    ('wrong_settlement',
        kept.state <> 'held' AND posted.ends = 1 AND (kept.state = 'captured') <> (posted.ended = 'capture'),
        kept.state, posted.ended),
    ('wrong_release', kept.state <> 'held' AND posted.ends = 1 AND posted.released <> kept.amount,
     trim_scale(kept.amount * 0.000001)::text, trim_scale(posted.released * 0.000001)::text),
    ('wrong_charge', kept.state <> 'held' AND posted.ends = 1 AND posted.charged <> kept.captured,
     trim_scale(kept.captured * 0.000001)::text, trim_scale(posted.charged * 0.000001)::text),
    ('charge_above_hold', kept.captured > kept.amount, trim_scale(kept.captured * 0.000001)::text, trim_scale(kept.amount * 0.000001)::text),
    ('wrong_currency', kept.currency <> kept.wanted, kept.currency, kept.wanted)
) AS d (kind, differs, kept, found)
WHERE d.differs`

const tracesOf = `
SELECT EXISTS (SELECT FROM wallets WHERE workspace_id = @workspace_id),
       EXISTS (SELECT FROM transactions WHERE workspace_id = @workspace_id) OR EXISTS (SELECT FROM holds WHERE workspace_id = @workspace_id)`

// allowTime permits long statements, because a ledger can have many millions of rows.
const allowTime = `SET LOCAL statement_timeout = '30min'`

// snapshotOptions returns the options of a transaction in which all statements read the same
// snapshot.
func snapshotOptions() pgx.TxOptions {
	return pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
}

// Books reads the balances and all differences of one workspace. It returns ErrNoWallet if the
// workspace has no wallet.
func (s *Store) Books(ctx context.Context, workspaceID uuid.UUID) (books Books, err error) {
	args := pgx.NamedArgs{"workspace_id": workspaceID}
	err = pgx.BeginTxFunc(ctx, s.pool, snapshotOptions(), func(tx pgx.Tx) error {
		var kept []ledger.Wallet
		var summed, open []ledger.Accounts
		batch := &pgx.Batch{}
		batch.Queue(walletOf, args).Query(collectInto(&kept))
		batch.Queue(sumEntries, args).Query(collectInto(&summed))
		batch.Queue(sumOpenHolds, args).Query(collectInto(&open))
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		if len(kept) == 0 {
			return ErrNoWallet
		}
		books.Kept, books.Summed, books.Open = kept[0], summed[0], open[0]
		books.Differences, err = differences(ctx, tx, workspaceID)
		return err
	})
	if err != nil {
		return books, fmt.Errorf("read books of %s: %w", workspaceID, err)
	}
	return books, nil
}

// Differences compares every balance, transaction and hold of one workspace in one snapshot, within
// 30 minutes. It returns ErrNoWallet if the workspace has no rows at all.
func (s *Store) Differences(ctx context.Context, workspaceID uuid.UUID) (found []ledger.Difference, err error) {
	err = pgx.BeginTxFunc(ctx, s.pool, snapshotOptions(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, allowTime); err != nil {
			return err
		}
		found, err = differences(ctx, tx, workspaceID)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("compare books of %s: %w", workspaceID, err)
	}
	return found, nil
}

func differences(ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID) ([]ledger.Difference, error) {
	args := pgx.NamedArgs{"workspace_id": workspaceID}
	var hasWallet, hasMore bool
	var balances, transactions, holds []ledger.Difference
	batch := &pgx.Batch{}
	batch.Queue(tracesOf, args).QueryRow(func(row pgx.Row) error { return row.Scan(&hasWallet, &hasMore) })
	batch.Queue(differingBalances, args).Query(collectInto(&balances))
	batch.Queue(differingTransactions, args).Query(collectInto(&transactions))
	batch.Queue(differingHolds, args).Query(collectInto(&holds))
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return nil, err
	}
	if !hasWallet && !hasMore {
		return nil, ErrNoWallet
	}
	if !hasWallet {
		balances = append(balances, ledger.Difference{
			WorkspaceID: workspaceID, Kind: ledger.MissingWallet, Subject: "balances", Kept: "none", Found: "entries or holds",
		})
	}
	return append(append(balances, transactions...), holds...), nil
}

const workspaceAfter = `
SELECT workspace_id FROM (
    (SELECT workspace_id FROM wallets WHERE workspace_id > @after ORDER BY workspace_id LIMIT 1) UNION ALL
    (SELECT workspace_id FROM transactions WHERE workspace_id > @after ORDER BY workspace_id LIMIT 1) UNION ALL
    (SELECT workspace_id FROM holds WHERE workspace_id > @after ORDER BY workspace_id LIMIT 1)) AS next
ORDER BY workspace_id LIMIT 1`

// WorkspaceAfter returns the next workspace, ordered by id, that has a wallet, a transaction or a
// hold. After the last workspace it returns the nil UUID.
func (s *Store) WorkspaceAfter(ctx context.Context, after uuid.UUID) (next uuid.UUID, err error) {
	next, err = pg.Value[uuid.UUID](ctx, s.pool, workspaceAfter, pgx.NamedArgs{"after": after})
	if err != nil && !errors.Is(err, pg.ErrNotFound) {
		return next, fmt.Errorf("find the workspace after %s: %w", after, err)
	}
	return next, nil
}
