package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
)

// If the dialer is already hanging up a call, these statements do not change the column `ending` of
// the call.
const (
	requestCallHangup = `
UPDATE calls SET hangup_at = CASE WHEN ending = '' THEN now() ELSE hangup_at END,
	ending = CASE WHEN ending = '' THEN 'requested' ELSE ending END,
	hangup_requested_at = coalesce(hangup_requested_at, now()),
	hangup_requested_by = coalesce(hangup_requested_by, @actor)
WHERE call_id = @call_id AND workspace_id = @workspace_id AND ended_at IS NULL
RETURNING call_id`
	requestHangups = `
WITH live AS MATERIALIZED (
	SELECT call_id FROM calls WHERE workspace_id = @workspace_id AND ended_at IS NULL AND direction = 'outbound'
	UNION ALL
	SELECT call_id FROM calls WHERE workspace_id = @workspace_id AND ended_at IS NULL AND direction = 'inbound'
), locked AS MATERIALIZED (
	SELECT c.call_id FROM calls c WHERE c.call_id IN (SELECT call_id FROM live) ORDER BY c.call_id FOR UPDATE
)
UPDATE calls SET hangup_at = CASE WHEN ending = '' THEN now() ELSE hangup_at END,
	ending = CASE WHEN ending = '' THEN 'requested' ELSE ending END,
	hangup_requested_at = coalesce(hangup_requested_at, now()),
	hangup_requested_by = coalesce(hangup_requested_by, @actor)
WHERE call_id IN (SELECT call_id FROM locked) AND ended_at IS NULL`
)

// RequestHangup marks a live call of the workspace to be hung up. It returns false if the workspace
// has no such live call. actor is the name of the operator, or "" for a client. A repeated call has
// no further effect. RequestHangup returns ErrServerChanged on a database server that is not
// reconciled, because the row of a live call can be missing there.
func (s *Store) RequestHangup(ctx context.Context, workspaceID, callID uuid.UUID, actor string) (live bool, err error) {
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		if err := sameServer(tx.QueryRow(ctx, checkServer, pg.Args{"server": s.server()})); err != nil {
			return err
		}
		_, err := pg.Value[uuid.UUID](ctx, tx, requestCallHangup, pg.Args{
			"call_id": callID, "workspace_id": workspaceID, "actor": actor,
		})
		live = err == nil
		if errors.Is(err, pg.ErrNotFound) {
			return nil
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("request the hang-up of call %s: %w", callID, err)
	}
	return live, nil
}

// RequestHangups marks all live calls of the workspace to be hung up, and returns their number.
// This includes calls whose INVITE was not sent yet. Such a call is hung up after its INVITE was
// sent. RequestHangups returns ErrServerChanged on a database server that is not reconciled.
func (s *Store) RequestHangups(ctx context.Context, workspaceID uuid.UUID, actor string) (calls int64, err error) {
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		if err := sameServer(tx.QueryRow(ctx, checkServer, pg.Args{"server": s.server()})); err != nil {
			return err
		}
		marked, err := tx.Exec(ctx, requestHangups, pg.Args{"workspace_id": workspaceID, "actor": actor})
		calls = marked.RowsAffected()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("request the hang-up of the calls of workspace %s: %w", workspaceID, err)
	}
	return calls, nil
}
