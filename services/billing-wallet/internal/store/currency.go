package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
)

// ErrCurrencyFixed says that the wallet has transactions in another currency.
var ErrCurrencyFixed = errors.New("the wallet has transactions in another currency")

const insertWallet = `
INSERT INTO wallets (workspace_id, currency) VALUES (@workspace_id, @currency)
ON CONFLICT (workspace_id) DO NOTHING`

const changeCurrency = `
UPDATE wallets SET currency = @currency
WHERE workspace_id = @workspace_id
  AND NOT EXISTS (SELECT 1 FROM transactions WHERE workspace_id = @workspace_id)`

// SetCurrency opens the workspace's wallet, or changes the currency of one without transactions (ErrCurrencyFixed otherwise).
// The same currency again changes nothing.
func (s *Store) SetCurrency(ctx context.Context, workspaceID uuid.UUID, currency string) error {
	args := pgx.NamedArgs{"workspace_id": workspaceID, "currency": currency}
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertWallet, args); err != nil {
			return err
		}
		wallet, err := s.lock(ctx, tx, workspaceID) // nobody posts a transaction between the look and the change
		if err != nil || wallet.Currency == currency {
			return err
		}
		changed, err := tx.Exec(ctx, changeCurrency, args)
		if err == nil && changed.RowsAffected() == 0 {
			return ErrCurrencyFixed
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("set currency of %s: %w", workspaceID, err)
	}
	return nil
}
