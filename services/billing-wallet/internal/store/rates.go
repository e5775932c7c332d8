package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/billing-wallet/internal/holds"
)

const ratesOf = `
SELECT prefix, per_minute_micro, increment_seconds FROM rates
WHERE workspace_id = @workspace_id
ORDER BY prefix`

// Rates lists the rates of the workspace, sorted by prefix.
func (s *Store) Rates(ctx context.Context, workspaceID uuid.UUID) ([]holds.Rate, error) {
	list, err := pg.Many[holds.Rate](ctx, s.pool, ratesOf, pgx.NamedArgs{"workspace_id": workspaceID})
	if err != nil {
		return nil, fmt.Errorf("list rates of %s: %w", workspaceID, err)
	}
	return list, nil
}

const deleteRates = `DELETE FROM rates WHERE workspace_id = @workspace_id`

const insertRates = `
INSERT INTO rates (workspace_id, prefix, per_minute_micro, increment_seconds)
SELECT @workspace_id, r.prefix, r.per_minute, r.increment
FROM unnest(@prefixes::text[], @per_minute::bigint[], @increments::integer[]) AS r (prefix, per_minute, increment)`

// ReplaceRates replaces all rates of the workspace. Existing holds keep their rates. ReplaceRates
// returns ErrNoWallet if the workspace has no wallet.
func (s *Store) ReplaceRates(ctx context.Context, workspaceID uuid.UUID, list []holds.Rate) error {
	prefixes, perMinute, increments := []string{}, []int64{}, []int32{}
	for _, r := range list {
		prefixes, perMinute, increments = append(prefixes, r.Prefix), append(perMinute, int64(r.PerMinute)), append(increments, r.IncrementSeconds)
	}
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		// the lock makes concurrent replacements run one after another
		if _, err := s.lockWallet(ctx, tx, workspaceID); err != nil {
			return err
		}
		batch := &pgx.Batch{}
		batch.Queue(deleteRates, pgx.NamedArgs{"workspace_id": workspaceID})
		batch.Queue(insertRates, pgx.NamedArgs{
			"workspace_id": workspaceID, "prefixes": prefixes, "per_minute": perMinute, "increments": increments,
		})
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return fmt.Errorf("replace rates of %s: %w", workspaceID, err)
	}
	return nil
}
