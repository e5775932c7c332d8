package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/contacts-compliance/internal/countryrules"
	"ringfence.dev/services/contacts-compliance/internal/gate"
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

// Policy returns the current policy and its version. Version 0 is the default policy.
func (s *Store) Policy(ctx context.Context, workspace uuid.UUID) (gate.Policy, int, error) {
	return readPolicy(ctx, s.pool, workspace)
}

func readPolicy(ctx context.Context, q querier, workspace uuid.UUID) (gate.Policy, int, error) {
	row, err := pg.One[policyRow](ctx, q, currentPolicy, pgx.NamedArgs{"workspace_id": workspace})
	if errors.Is(err, pg.ErrNotFound) {
		return gate.DefaultPolicy(), 0, nil
	}
	if err != nil {
		return gate.Policy{}, 0, fmt.Errorf("read policy: %w", err)
	}
	p, err := decodePolicy(row.Policy)
	return p, row.Version, err
}

func decodePolicy(raw json.RawMessage) (gate.Policy, error) {
	if raw == nil {
		return gate.DefaultPolicy(), nil
	}
	var p gate.Policy
	if err := json.Unmarshal(raw, &p); err != nil {
		return p, fmt.Errorf("decode policy: %w", err)
	}
	return p, nil
}

// PolicyChange is a calling policy that an operator set.
type PolicyChange struct {
	WorkspaceID uuid.UUID
	// JSON is the policy that the operator sent. If JSON is empty, the default policy applies.
	JSON     json.RawMessage
	Operator string
	// SetInVersion is the version of the workspace in which the operator set the policy.
	SetInVersion int64
}

// PolicyChangeOf converts the gateway's message. It returns nil if the message has no policy. The
// stored policy is then not changed.
func PolicyChangeOf(ev *eventv1.WorkspaceEvent) (*PolicyChange, error) {
	id, err := uuid.Parse(ev.GetWorkspaceId())
	if err != nil {
		return nil, fmt.Errorf("workspace_id: %w", err)
	}
	workspace := cmp.Or(ev.GetWorkspace(), ev.GetTestWorkspace())
	if workspace == nil {
		return nil, errors.New("the workspace event is newer than this build")
	}
	set := workspace.GetCallingPolicy()
	if set == nil {
		return nil, nil //nolint:nilnil // the message has no policy
	}
	return &PolicyChange{
		WorkspaceID: id, JSON: set.GetPolicyJson(), Operator: set.GetOperator(), SetInVersion: set.GetSetInVersion(),
	}, nil
}

// ApplyPolicy stores a policy for ApplySetting. When it returns nil, every check uses the policy of
// c.SetInVersion or of a newer version.
func (s *Store) ApplyPolicy(ctx context.Context, c PolicyChange, packs countryrules.Library) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error { return s.SetPolicy(ctx, tx, c, packs) })
}

// advanceSource locks the row of a workspace, so that concurrent changes run one after the other.
// The SELECT excludes stored versions, because ON CONFLICT would lock their rows.
const advanceSource = `
INSERT INTO policy_sources AS p (workspace_id, set_in_version)
SELECT @workspace_id::uuid, @set_in_version::bigint
WHERE NOT EXISTS (
    SELECT FROM policy_sources WHERE workspace_id = @workspace_id AND set_in_version >= @set_in_version)
ON CONFLICT (workspace_id) DO UPDATE SET set_in_version = EXCLUDED.set_in_version
WHERE p.set_in_version < EXCLUDED.set_in_version`

// SetPolicy stores a policy unless the policy of c.SetInVersion or of a newer version is already
// stored. It returns an *apierr.Error if the policy is not valid.
func (s *Store) SetPolicy(ctx context.Context, tx pgx.Tx, c PolicyChange, packs countryrules.Library) error {
	args := pgx.NamedArgs{"workspace_id": c.WorkspaceID, "set_in_version": c.SetInVersion}
	advanced, err := tx.Exec(ctx, advanceSource, args)
	if err != nil {
		return fmt.Errorf("advance policy source of workspace %s: %w", c.WorkspaceID, err)
	}
	if advanced.RowsAffected() == 0 {
		return nil
	}
	p, err := gate.ParsePolicy(c.JSON, packs)
	if err != nil {
		return fmt.Errorf("policy of workspace %s: %w", c.WorkspaceID, err)
	}
	return recordPolicy(ctx, tx, c.WorkspaceID, p.WithOperator(c.Operator), c.Operator)
}

const insertPolicy = `
INSERT INTO policies (workspace_id, version, policy, operator)
VALUES (@workspace_id, @version, @policy, @operator)`

// recordPolicy inserts a policy with the next policy version, which makes it the current policy. If
// it equals the current policy, recordPolicy inserts nothing. The caller must prevent concurrent
// changes of the workspace's policy.
func recordPolicy(ctx context.Context, tx pgx.Tx, workspace uuid.UUID, p gate.Policy, operator string) error {
	raw, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode policy: %w", err)
	}
	current, latest, err := readPolicy(ctx, tx, workspace)
	if err != nil {
		return err
	}
	if latest > 0 && reflect.DeepEqual(current, p) {
		return nil
	}
	args := pgx.NamedArgs{"workspace_id": workspace, "version": latest + 1, "policy": raw, "operator": operator}
	if _, err := tx.Exec(ctx, insertPolicy, args); err != nil {
		return fmt.Errorf("insert policy: %w", err)
	}
	return nil
}

// recentDials returns the last dial of each other request to the number, newest first. A request
// counts as dialed if the dial-time check allowed it, even if no channel was free.
const recentDials = `
SELECT max(judged_at) AS dialed_at
FROM decisions
WHERE workspace_id = @workspace_id AND phone_e164 = @phone_e164 AND kind = 'dial' AND result = 'open'
  AND judged_at > @since AND call_request_id <> @call_request_id
GROUP BY call_request_id
ORDER BY dialed_at DESC
LIMIT @calls`

// Dials returns the times of at most limit dials of other requests to the number. The times are
// after start, newest first.
func (s *Store) Dials(ctx context.Context, q Target, start time.Time, limit int) ([]time.Time, error) {
	return readDials(ctx, s.pool, q, start, limit)
}

func readDials(ctx context.Context, from querier, q Target, since time.Time, limit int) ([]time.Time, error) {
	args := q.args()
	args["since"], args["calls"] = since, limit
	found, err := pg.Values[time.Time](ctx, from, recentDials, args)
	if err != nil {
		return nil, fmt.Errorf("read dials of request %s: %w", q.CallRequestID, err)
	}
	for i := range found {
		found[i] = found[i].UTC()
	}
	return found, nil
}

const lockNumberGate = `
SELECT pg_advisory_xact_lock(hashtextextended('gate ' || @workspace_id::text || ' ' || @phone_e164::text, 0))`

// RecentDials returns the times of at most limit dials of other requests to the number. The times
// are after start, newest first.
type RecentDials func(start time.Time, limit int) ([]time.Time, error)

// DecideInOrder locks the number, calls evaluateGates and stores the decision. Because of the lock,
// evaluateGates sees all dials that earlier decisions allowed.
func (s *Store) DecideInOrder(ctx context.Context, q Target,
	evaluateGates func(Inputs, RecentDials) (Decision, error)) (decided Decision, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockNumberGate, pg.Args(pgx.NamedArgs{"workspace_id": q.WorkspaceID,
			"phone_e164": q.Number})); err != nil {
			return fmt.Errorf("lock number of request %s: %w", q.CallRequestID, err)
		}
		// The statement starts after the lock was granted. So the statement reads all commits of
		// earlier holders of the lock.
		k, err := pg.One[Inputs](ctx, tx, selectInputs, q.args())
		if err != nil {
			return fmt.Errorf("read inputs of request %s: %w", q.CallRequestID, err)
		}
		if k.Policy, err = decodePolicy(k.RawPolicy); err != nil {
			return err
		}
		decided, err = evaluateGates(k, func(since time.Time, limit int) ([]time.Time,
			error) {
			return readDials(ctx, tx, q, since, limit)
		})
		if err != nil {
			return err
		}
		args, err := decided.args()
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, insertDecision, pg.Args(args)); err != nil {
			return fmt.Errorf("store decision of request %s: %w", q.CallRequestID, err)
		}
		return nil
	})
	return decided, err
}
