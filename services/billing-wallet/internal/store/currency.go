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

// ErrCurrencyFixed means that the workspace has a wallet in another currency. The currency of a
// workspace never changes.
var ErrCurrencyFixed = errors.New("the wallet has another currency")

const insertWallet = `
INSERT INTO wallets (workspace_id, currency) VALUES (@workspace_id, @currency)
ON CONFLICT (workspace_id) DO NOTHING`

// ApplyCurrency creates the wallet of a workspace in the currency, for ApplySetting. It commits
// before it returns.
func (s *Store) ApplyCurrency(ctx context.Context, workspaceID uuid.UUID, currency string) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error { return s.KeepCurrency(ctx, tx, workspaceID, currency) })
}

// KeepCurrency creates the workspace's wallet in the currency. If the workspace already has a
// wallet in this currency, nothing changes. If the wallet has another currency, KeepCurrency
// returns ErrCurrencyFixed.
func (s *Store) KeepCurrency(ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID, currency string) error {
	args := pgx.NamedArgs{"workspace_id": workspaceID, "currency": currency}
	inserted, err := tx.Exec(ctx, insertWallet, args)
	if err != nil {
		return fmt.Errorf("open wallet of workspace %s: %w", workspaceID, err)
	}
	if inserted.RowsAffected() == 1 {
		return nil
	}
	wallet, err := pg.One[ledger.Wallet](ctx, tx, walletOf, args)
	if err != nil {
		return fmt.Errorf("read wallet of workspace %s: %w", workspaceID, err)
	}
	if wallet.Currency != currency {
		return fmt.Errorf("open wallet of workspace %s: %w", workspaceID, ErrCurrencyFixed)
	}
	return nil
}
