package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
)

const claimReconciliations = `
INSERT INTO reconciliations (workspace_id, claimed_at, differences)
SELECT workspace_id, now(), 0 FROM (
    SELECT w.workspace_id FROM wallets w LEFT JOIN reconciliations r ON r.workspace_id = w.workspace_id
    WHERE coalesce(r.claimed_at, r.checked_at, '-infinity') < now() - make_interval(secs => @interval)
    ORDER BY coalesce(r.claimed_at, r.checked_at) NULLS FIRST
    LIMIT @limit) AS due
ORDER BY workspace_id
ON CONFLICT (workspace_id) DO UPDATE SET claimed_at = now()
WHERE coalesce(reconciliations.claimed_at, reconciliations.checked_at,
	'-infinity') < now() - make_interval(secs => @interval)
RETURNING workspace_id`

// ClaimReconciliations claims up to limit wallets that were not claimed within interval, oldest
// claim first. Until interval has passed, no other replica can claim these wallets, even if their
// comparison fails.
func (s *Store) ClaimReconciliations(ctx context.Context, interval time.Duration, limit int) ([]uuid.UUID, error) {
	claimed, err := pg.Values[uuid.UUID](ctx, s.pool, claimReconciliations, pgx.NamedArgs{"interval": interval.Seconds(),
		"limit": limit})
	if err != nil {
		return nil, fmt.Errorf("claim reconciliations: %w", err)
	}
	return claimed, nil
}

const saveReconciliation = `UPDATE reconciliations SET checked_at = now(), differences = @differences WHERE workspace_id = @workspace_id`

// SaveReconciliation stores the number of differences of a comparison.
func (s *Store) SaveReconciliation(ctx context.Context, workspaceID uuid.UUID, differences int) error {
	_, err := s.pool.Exec(ctx, saveReconciliation, pgx.NamedArgs{"workspace_id": workspaceID, "differences": differences})
	if err != nil {
		return fmt.Errorf("save reconciliation of %s: %w", workspaceID, err)
	}
	return nil
}

const reconciled = `
SELECT coalesce(sum(r.differences), 0)::bigint AS differences,
       coalesce(extract(epoch FROM now() - min(coalesce(r.checked_at, w.created_at))), 0)::double precision AS age_seconds
FROM wallets w LEFT JOIN reconciliations r ON r.workspace_id = w.workspace_id`

// Reconciled is the summary of the last comparisons of all wallets.
type Reconciled struct {
	Differences int64
	// AgeSeconds is the age of the oldest comparison. For a wallet that was never compared, the age
	// of the wallet is used instead.
	AgeSeconds float64
}

// Reconciled returns the summary for all wallets, whichever replica compared them.
func (s *Store) Reconciled(ctx context.Context) (Reconciled, error) {
	sum, err := pg.One[Reconciled](ctx, s.pool, reconciled, pgx.NamedArgs{})
	if err != nil {
		return sum, fmt.Errorf("sum up reconciliations: %w", err)
	}
	return sum, nil
}
