// Package store contains all SQL of billing-wallet. Every transaction takes locks in the same
// order: pending settlements, one wallet, and the holds of this wallet. A statement that locks
// holds or pending settlements without the lock of their wallet skips locked rows, so it never
// waits. Packages ledger and holds compute the amounts.
package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/billing-wallet/internal/ledger"
)

// Store accesses the schema billing_wallet with the database role that the service uses at run
// time.
type Store struct {
	pool  *pgxpool.Pool
	floor settlementFloor
}

// New returns a store that uses the pool.
func New(pool *pgxpool.Pool) *Store { return &Store{pool: pool} }

// ErrNoWallet means that the workspace has no wallet yet. The wallet is created when the currency
// of the workspace arrives.
var ErrNoWallet = errors.New("the workspace has no wallet")

const walletColumns = `workspace_id, currency, wallet_micro, held_micro, revenue_micro, funding_micro,
    last_transaction_at,
	low_balance_threshold_micro, low_balance, low_balance_events`

const walletOf = `SELECT ` + walletColumns + ` FROM wallets WHERE workspace_id = @workspace_id`

// Wallet reads a workspace's wallet. It returns ErrNoWallet if the workspace has no wallet.
func (s *Store) Wallet(ctx context.Context, workspaceID uuid.UUID) (ledger.Wallet, error) {
	wallet, err := pg.One[ledger.Wallet](ctx, s.pool, walletOf, pgx.NamedArgs{"workspace_id": workspaceID})
	if errors.Is(err, pg.ErrNotFound) {
		return wallet, ErrNoWallet
	}
	if err != nil {
		return wallet, fmt.Errorf("read wallet %s: %w", workspaceID, err)
	}
	return wallet, nil
}

const lockWallet = walletOf + ` FOR NO KEY UPDATE`

func (s *Store) lockWallet(ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID) (ledger.Wallet, error) {
	wallet, err := pg.One[ledger.Wallet](ctx, tx, lockWallet, pgx.NamedArgs{"workspace_id": workspaceID})
	if errors.Is(err, pg.ErrNotFound) {
		return wallet, ErrNoWallet
	}
	if err != nil {
		return wallet, fmt.Errorf("lock wallet %s: %w", workspaceID, err)
	}
	return wallet, nil
}

func collectInto[T any](to *[]T) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*to, err = pgx.CollectRows(rows, pgx.RowToStructByName[T])
		return err
	}
}
