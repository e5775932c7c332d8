package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/contacts-compliance/internal/policy"
)

type policyRow struct {
	Version int
	Policy  json.RawMessage
}

const currentPolicy = `
SELECT version, policy
FROM policies
WHERE workspace_id = @workspace_id
ORDER BY version DESC
LIMIT 1`

// Policy is the workspace's policy in force and its version; version 0 is the default that nobody set.
func (s *Store) Policy(ctx context.Context, workspace uuid.UUID) (policy.Policy, int, error) {
	return readPolicy(ctx, s.pool, workspace)
}

func readPolicy(ctx context.Context, q querier, workspace uuid.UUID) (policy.Policy, int, error) {
	row, err := one[policyRow](ctx, q, currentPolicy, pgx.NamedArgs{"workspace_id": workspace})
	if errors.Is(err, pgx.ErrNoRows) {
		return policy.Default(), 0, nil
	}
	if err != nil {
		return policy.Policy{}, 0, fmt.Errorf("read policy: %w", err)
	}
	p, err := decodePolicy(row.Policy)
	return p, row.Version, err
}

func decodePolicy(raw json.RawMessage) (policy.Policy, error) {
	if raw == nil {
		return policy.Default(), nil
	}
	var p policy.Policy
	if err := json.Unmarshal(raw, &p); err != nil {
		return p, fmt.Errorf("decode policy: %w", err)
	}
	return p, nil
}

// Two operators may change a workspace at once; the lock gives their policies an order.
const lockPolicies = `
SELECT pg_advisory_xact_lock(hashtextextended('policies ' || @workspace_id::text, 0))`

const insertPolicy = `
INSERT INTO policies (workspace_id, version, policy, operator)
VALUES (@workspace_id, @version, @policy, @operator)`

// SetPolicy puts a policy in force under the next version. The policy that is in force already keeps its version.
func (s *Store) SetPolicy(ctx context.Context, workspace uuid.UUID, p policy.Policy, operator string) (version int, err error) {
	raw, err := json.Marshal(p)
	if err != nil {
		return 0, fmt.Errorf("encode policy: %w", err)
	}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		args := pgx.NamedArgs{"workspace_id": workspace, "policy": raw, "operator": operator}
		if _, err := tx.Exec(ctx, lockPolicies, args); err != nil {
			return fmt.Errorf("lock policies: %w", err)
		}
		current, latest, err := readPolicy(ctx, tx, workspace)
		if err != nil {
			return err
		}
		if version = latest; latest > 0 && reflect.DeepEqual(current, p) {
			return nil
		}
		version = latest + 1
		args["version"] = version
		if _, err := tx.Exec(ctx, insertPolicy, args); err != nil {
			return fmt.Errorf("insert policy: %w", err)
		}
		return nil
	})
	return version, err
}
