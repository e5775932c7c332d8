package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/phone"
	"ringfence.dev/services/contacts-compliance/internal/contact"
)

// Unknown says what to do about a number that the workspace has never seen.
type Unknown int

// An opt-out of a stranger is kept for the day the number is called; the removal of one is not.
const (
	CreateUnknown Unknown = iota
	RefuseUnknown
)

const ensureContact = `
INSERT INTO contacts (id, workspace_id, phone_e164, updated_at)
VALUES (@id, @workspace_id, @phone_e164, @updated_at)
ON CONFLICT (workspace_id, phone_e164) DO NOTHING`

const moveStates = `
UPDATE contacts
SET dnd_status = @dnd_status, consent_status = @consent_status, updated_at = now()
WHERE workspace_id = @workspace_id AND id = @id
RETURNING ` + contactColumns

const insertRecord = `
INSERT INTO consent_records (id, workspace_id, phone_e164, contact_id, kind, source, actor, reason, evidence, call_id, before, after, occurred_at)
VALUES (@id, @workspace_id, @phone_e164, @contact_id, @kind, @source, @actor, @reason, @evidence, @call_id, @before, @after, coalesce(@occurred_at, now()))`

const callHeard = `
SELECT EXISTS (SELECT 1 FROM consent_records WHERE workspace_id = @workspace_id AND call_id = @call_id AND kind = @kind)`

// Record moves one state of a number and writes down why, in one commit. The contact's row is locked first, so
// records of one number stand in the order of their effects. A change that names a call happens once per call.
// A number never seen is created or ErrNotFound, as unknown says.
func (s *Store) Record(ctx context.Context, ch contact.Change, unknown Unknown) (changed contact.Contact, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		c, err := lockNumber(ctx, tx, ch, unknown)
		if err != nil {
			return err
		}
		if ch.CallID != uuid.Nil {
			var heard bool
			err := tx.QueryRow(ctx, callHeard, pgx.NamedArgs{"workspace_id": ch.WorkspaceID, "call_id": ch.CallID, "kind": ch.Kind}).Scan(&heard)
			if err != nil {
				return fmt.Errorf("look for record of call %s: %w", ch.CallID, err)
			}
			if heard {
				changed = c
				return nil
			}
		}
		changed, err = move(ctx, tx, c, ch)
		return err
	})
	return changed, err
}

func lockNumber(ctx context.Context, tx pgx.Tx, ch contact.Change, unknown Unknown) (contact.Contact, error) {
	var none contact.Contact
	if unknown == CreateUnknown {
		id, err := uuid.NewV7()
		if err != nil {
			return none, fmt.Errorf("make contact id: %w", err)
		}
		_, err = tx.Exec(ctx, ensureContact, pgx.NamedArgs{
			"id": id, "workspace_id": ch.WorkspaceID, "phone_e164": ch.Number, "updated_at": contact.Instant(id),
		})
		if err != nil {
			return none, fmt.Errorf("ensure contact: %w", err)
		}
	}
	c, err := one[contact.Contact](ctx, tx, contactByNumber+` FOR UPDATE`, pgx.NamedArgs{"workspace_id": ch.WorkspaceID, "phone_e164": ch.Number})
	if errors.Is(err, pgx.ErrNoRows) {
		return none, ErrNotFound
	}
	if err != nil {
		return none, fmt.Errorf("lock contact: %w", err)
	}
	return c, nil
}

func move(ctx context.Context, tx pgx.Tx, c contact.Contact, ch contact.Change) (contact.Contact, error) {
	moved, before, after := c.Apply(ch.Kind)
	moved, err := one[contact.Contact](ctx, tx, moveStates, pgx.NamedArgs{
		"workspace_id": c.WorkspaceID, "id": c.ID, "dnd_status": moved.DND, "consent_status": moved.Consent,
	})
	if err != nil {
		return c, fmt.Errorf("move states of contact %s: %w", c.ID, err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return c, fmt.Errorf("make record id: %w", err)
	}
	args := pgx.NamedArgs{
		"id": id, "workspace_id": c.WorkspaceID, "phone_e164": c.Number, "contact_id": c.ID, "kind": ch.Kind,
		"source": ch.Source, "actor": ch.Actor, "reason": ch.Reason, "evidence": nil, "call_id": orNull(ch.CallID),
		"before": before, "after": after, "occurred_at": orNull(ch.OccurredAt),
	}
	if ch.Evidence != nil {
		args["evidence"] = []byte(ch.Evidence)
	}
	if _, err := tx.Exec(ctx, insertRecord, args); err != nil {
		return c, fmt.Errorf("write consent record of contact %s: %w", c.ID, err)
	}
	return moved, nil
}

const recordColumns = `id, phone_e164, contact_id, kind, source, actor, reason, evidence, before, after, occurred_at`

const listRecords = `
SELECT ` + recordColumns + `
FROM consent_records
WHERE workspace_id = @workspace_id
  AND (@after::uuid IS NULL OR id < @after)
  AND (@phone_e164::text IS NULL OR phone_e164 = @phone_e164)
ORDER BY id DESC
LIMIT @rows`

const recordCursor = `
SELECT EXISTS (SELECT 1 FROM consent_records WHERE workspace_id = @workspace_id AND id = @after)`

// Records reads one page of the consent ledger, newest first; an empty number means all of them.
func (s *Store) Records(ctx context.Context, workspace uuid.UUID, number phone.Number, p page.Request) ([]contact.Record, error) {
	args := pgx.NamedArgs{"workspace_id": workspace, "after": orNull(p.After), "phone_e164": orNull(number), "rows": p.Rows()}
	if err := s.knowCursor(ctx, recordCursor, p, args); err != nil {
		return nil, err
	}
	records, err := many[contact.Record](ctx, s.pool, listRecords, args)
	if err != nil {
		return nil, fmt.Errorf("list consent records: %w", err)
	}
	return records, nil
}

const recordByID = `
SELECT ` + recordColumns + `
FROM consent_records
WHERE workspace_id = @workspace_id AND id = @id`

// RecordByID reads one row of the consent ledger, or ErrNotFound.
func (s *Store) RecordByID(ctx context.Context, workspace, id uuid.UUID) (contact.Record, error) {
	record, err := one[contact.Record](ctx, s.pool, recordByID, pgx.NamedArgs{"workspace_id": workspace, "id": id})
	if errors.Is(err, pgx.ErrNoRows) {
		return record, ErrNotFound
	}
	if err != nil {
		return record, fmt.Errorf("read consent record: %w", err)
	}
	return record, nil
}

const prunePreChecks = `
DELETE FROM prechecks WHERE created_at < now() - make_interval(secs => @seconds)`

// PrunePreChecks forgets answers older than keep and says how many.
func (s *Store) PrunePreChecks(ctx context.Context, keep time.Duration) (int64, error) {
	tag, err := s.pool.Exec(ctx, prunePreChecks, pgx.NamedArgs{"seconds": keep.Seconds()})
	if err != nil {
		return 0, fmt.Errorf("prune pre-checks: %w", err)
	}
	return tag.RowsAffected(), nil
}
