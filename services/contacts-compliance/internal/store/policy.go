package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

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
	row, err := pg.One[policyRow](ctx, q, currentPolicy, pgx.NamedArgs{"workspace_id": workspace})
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

// Dials of other requests, newest first: when the gate last let each of them through. A request that was let through and found no free line
// counts as if it had rung.
const recentDials = `
SELECT max(judged_at) AS dialed_at
FROM decisions
WHERE workspace_id = @workspace_id AND phone_e164 = @phone_e164 AND kind = 'dial' AND result = 'open'
  AND judged_at > @since AND call_request_id <> @call_request_id
GROUP BY call_request_id
ORDER BY dialed_at DESC
LIMIT @calls`

// Dials are when other requests for the number were let through after since, the newest so many.
func (s *Store) Dials(ctx context.Context, q Question, since time.Time, calls int) ([]time.Time, error) {
	return dials(ctx, s.pool, q, since, calls)
}

func dials(ctx context.Context, from querier, q Question, since time.Time, calls int) ([]time.Time, error) {
	args := q.args()
	args["since"], args["calls"] = since, calls
	rows, err := from.Query(ctx, recentDials, pg.Args(args))
	if err != nil {
		return nil, fmt.Errorf("count dials of request %s: %w", q.CallRequestID, err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	if err != nil {
		return nil, fmt.Errorf("count dials of request %s: %w", q.CallRequestID, err)
	}
	for i := range found {
		found[i] = found[i].UTC()
	}
	return found, nil
}

const lockNumberGate = `
SELECT pg_advisory_xact_lock(hashtextextended('gate ' || @workspace_id::text || ' ' || @phone_e164::text, 0))`

// Count is how judge asks for the number's dials.
type Count func(since time.Time, calls int) ([]time.Time, error)

// Counted lets judge decide and keeps its decision while nobody else is deciding in this way about the same number of the workspace: what it
// counts holds every dial that was let through before its own, whichever replica let it through.
func (s *Store) Counted(ctx context.Context, q Question, judge func(Known, Count) (Decision, error)) (decided Decision, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockNumberGate, pg.Args(pgx.NamedArgs{"workspace_id": q.WorkspaceID, "phone_e164": q.Number})); err != nil {
			return fmt.Errorf("lock gate of request %s: %w", q.CallRequestID, err)
		}
		// A statement sees what was committed when it began: after the lock, all that its earlier holders kept.
		k, err := pg.One[Known](ctx, tx, known, q.args())
		if err != nil {
			return fmt.Errorf("read facts of request %s: %w", q.CallRequestID, err)
		}
		if k.Policy, err = decodePolicy(k.RawPolicy); err != nil {
			return err
		}
		decided, err = judge(k, func(since time.Time, calls int) ([]time.Time, error) { return dials(ctx, tx, q, since, calls) })
		if err != nil {
			return err
		}
		args, err := decided.args()
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, insertDecision, pg.Args(args)); err != nil {
			return fmt.Errorf("keep decision on request %s: %w", q.CallRequestID, err)
		}
		return nil
	})
	return decided, err
}
