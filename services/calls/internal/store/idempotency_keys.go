package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
)

// Claim is the right of one POST to create the request of an idempotency key. Other POSTs with the
// same key wait until the claim ends.
type Claim struct {
	WorkspaceID uuid.UUID `db:"workspace_id"`
	Key         string    `db:"key"`
	// RequestID is the id of the request that the POST will create. If another POST with the same
	// body takes over the claim, the id stays the same.
	RequestID uuid.UUID `db:"request_id"`
	// Epoch increases with each takeover of the claim. A POST that lost its claim has an older
	// epoch, so it cannot free the key.
	Epoch int32 `db:"epoch"`
}

const claimKey = `
INSERT INTO idempotency_keys AS k (workspace_id, key, request_id, fingerprint, epoch, leased_until)
VALUES (@workspace_id, @key, @request_id, @fingerprint, 1, now() + make_interval(secs => @lease))
ON CONFLICT (workspace_id, key) DO UPDATE SET
    request_id = CASE WHEN k.fingerprint = EXCLUDED.fingerprint THEN k.request_id ELSE EXCLUDED.request_id END,
    fingerprint = EXCLUDED.fingerprint, epoch = k.epoch + 1, leased_until = EXCLUDED.leased_until
WHERE NOT k.done AND k.leased_until <= now()
RETURNING workspace_id, key, request_id, epoch`

// ClaimKey claims a key that is free or whose lease has expired. ok is false if the key has a
// stored request or is claimed by another POST.
//
// If the body equals the body of the previous claim, the request id stays the same. The pre-check
// and the hold then return their earlier results.
func (s *Store) ClaimKey(ctx context.Context, want Claim, fingerprint []byte, lease time.Duration) (got Claim, ok bool, err error) {
	got, err = pg.One[Claim](ctx, s.pool, claimKey, pgx.NamedArgs{
		"workspace_id": want.WorkspaceID, "key": want.Key, "request_id": want.RequestID,
		"fingerprint": fingerprint, "lease": lease.Seconds(),
	})
	if errors.Is(err, pg.ErrNotFound) {
		return Claim{}, false, nil
	}
	if err != nil {
		return Claim{}, false, fmt.Errorf("claim idempotency key: %w", err)
	}
	return got, true, nil
}

// KeyState is the state of an idempotency key, read by a POST that waits for the key.
type KeyState struct {
	RequestID uuid.UUID `db:"request_id"`
	Done      bool      `db:"done"`
	// Lapsed is true if the lease has expired.
	Lapsed bool `db:"lapsed"`
	// Fingerprint is the hash of the body of the POST that claimed the key last.
	Fingerprint []byte `db:"fingerprint"`
}

const selectKeyState = `
SELECT request_id, done, leased_until <= now() AS lapsed, fingerprint FROM idempotency_keys
WHERE workspace_id = @workspace_id AND key = @key`

// KeyState reads a key. It returns pg.ErrNotFound if the key is free.
func (s *Store) KeyState(ctx context.Context, workspaceID uuid.UUID, key string) (KeyState, error) {
	state, err := pg.One[KeyState](ctx, s.pool, selectKeyState, pgx.NamedArgs{"workspace_id": workspaceID, "key": key})
	if err != nil {
		return KeyState{}, fmt.Errorf("read idempotency key: %w", err)
	}
	return state, nil
}

const freeKey = `
DELETE FROM idempotency_keys
WHERE workspace_id = @workspace_id AND key = @key AND request_id = @request_id AND epoch = @epoch AND NOT done`

// FreeKey deletes a claim, so that the key can be used again.
func (s *Store) FreeKey(ctx context.Context, c Claim) error {
	if _, err := s.pool.Exec(ctx, freeKey, claimArgs(c)); err != nil {
		return fmt.Errorf("free idempotency key: %w", err)
	}
	return nil
}

const lapseKey = `
UPDATE idempotency_keys SET leased_until = now()
WHERE workspace_id = @workspace_id AND key = @key AND request_id = @request_id AND epoch = @epoch AND NOT done`

// LapseKey ends the lease of a claim but keeps the request id. The next POST uses this id, and
// therefore also a hold that exists for this id.
func (s *Store) LapseKey(ctx context.Context, c Claim) error {
	if _, err := s.pool.Exec(ctx, lapseKey, claimArgs(c)); err != nil {
		return fmt.Errorf("end lease of idempotency key: %w", err)
	}
	return nil
}

// finishKey marks the key as done, in the transaction that stores its request. If the claim was
// lost, the statement changes no row.
const finishKey = `
UPDATE idempotency_keys SET done = true
WHERE workspace_id = @workspace_id AND key = @key AND request_id = @request_id`

func claimArgs(c Claim) pgx.NamedArgs {
	return pgx.NamedArgs{"workspace_id": c.WorkspaceID, "key": c.Key, "request_id": c.RequestID, "epoch": c.Epoch}
}

// Request ids are UUIDv7 and begin with a time. So the condition on request_id restricts the scan
// to old keys. A claim without a request is the result of a crash or an error.
const deleteExpiredKeys = `
DELETE FROM idempotency_keys k USING (
    SELECT k.workspace_id, k.key
    FROM idempotency_keys k LEFT JOIN call_requests r ON r.id = k.request_id
    WHERE k.request_id < @before_id AND (r.completed_at < now() - make_interval(secs => @keep) OR (r.id IS NULL AND k.leased_until < now() - make_interval(secs => @keep)))
    ORDER BY k.request_id LIMIT @limit
) old WHERE k.workspace_id = old.workspace_id AND k.key = old.key AND k.leased_until < now()`

// DeleteExpiredKeys deletes at most limit keys whose request ended longer than keepTime ago. It
// returns their number. beforeID must be the smallest UUIDv7 of the time that is keepTime ago.
func (s *Store) DeleteExpiredKeys(ctx context.Context, beforeID uuid.UUID, keepTime time.Duration, limit int) (int64,
	error) {
	tag, err := s.pool.Exec(ctx, deleteExpiredKeys, pgx.NamedArgs{"before_id": beforeID, "keep": keepTime.Seconds(),
		"limit": limit})
	if err != nil {
		return 0, fmt.Errorf("delete expired idempotency keys: %w", err)
	}
	return tag.RowsAffected(), nil
}
