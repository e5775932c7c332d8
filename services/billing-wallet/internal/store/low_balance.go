package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/money"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/billing-wallet/internal/ledger"
)

const (
	setThreshold = `
UPDATE wallets SET low_balance_threshold_micro = @threshold::bigint, low_balance = low_balance
    AND @threshold::bigint IS NOT NULL
WHERE workspace_id = @workspace_id`
	setLowBalance = `
UPDATE wallets SET low_balance = @low, low_balance_events = @events WHERE workspace_id = @workspace_id`
)

// SetLowBalanceThreshold sets the balance below which the event wallet.low_balance is published. If
// threshold is nil, the wallet has no threshold. If the balance is below a new threshold, the event
// is published immediately. SetLowBalanceThreshold returns ErrNoWallet if the workspace has no
// wallet.
func (s *Store) SetLowBalanceThreshold(
	ctx context.Context, workspaceID uuid.UUID, threshold *money.Micro,
) (wallet ledger.Wallet, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if wallet, err = s.lockWallet(ctx, tx, workspaceID); err != nil {
			return err
		}
		wallet.LowBalanceThreshold = threshold
		batch := &pgx.Batch{}
		batch.Queue(setThreshold, pg.Args{"workspace_id": workspaceID, "threshold": (*int64)(threshold)})
		if err := queueLowBalance(ctx, batch, wallet, wallet.Accounts); err != nil {
			return err
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return wallet, fmt.Errorf("set low-balance threshold of %s: %w", workspaceID, err)
	}
	return wallet, nil
}

// queueLowBalance adds the statements for a change of the balance. If the balance has fallen below
// the threshold, it adds the event and the new state. The wallet must be locked, so that each fall
// below the threshold has exactly one event.
func queueLowBalance(ctx context.Context, batch *pgx.Batch, wallet ledger.Wallet, next ledger.Accounts) error {
	low := wallet.IsLow(next.Balance())
	if low == wallet.LowBalance {
		return nil
	}
	events := wallet.LowBalanceEvents
	if low {
		events++
		event := lowBalanceEvent(wallet, next.Balance(), events, time.Now())
		if err := outbox.Queue(ctx, batch, event); err != nil {
			return fmt.Errorf("queue low-balance event of %s: %w", wallet.WorkspaceID, err)
		}
	}
	batch.Queue(setLowBalance, pg.Args{"workspace_id": wallet.WorkspaceID, "low": low, "events": events})
	return nil
}

func lowBalanceEvent(wallet ledger.Wallet, balance money.Micro, sequence int32, at time.Time) outbox.Event {
	id := uuid.NewSHA1(wallet.WorkspaceID, fmt.Appendf(nil, "wallet.low_balance %d", sequence))
	return outbox.Event{
		ID: id, Topic: kafka.WalletEvents, Key: wallet.WorkspaceID.String(), WorkspaceID: wallet.WorkspaceID,
		Message: &eventv1.WalletEvent{
			WorkspaceId: wallet.WorkspaceID.String(), OccurredAt: timestamppb.New(at),
			Event: &eventv1.WalletEvent_LowBalance{LowBalance: &eventv1.LowBalance{
				EventId: id.String(), Sequence: sequence, BalanceMicro: int64(balance),
				ThresholdMicro: int64(*wallet.LowBalanceThreshold), Currency: wallet.Currency,
			}},
		},
	}
}
