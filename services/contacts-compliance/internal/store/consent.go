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
	"ringfence.dev/services/contacts-compliance/internal/contacts"
)

// UnknownNumber determines what Record does if the workspace has no contact with the number.
type UnknownNumber int

// An opt-out creates the contact if needed, so that it applies to later calls. The removal of an
// opt-out creates no contact.
const (
	CreateUnknown UnknownNumber = iota
	RefuseUnknown
)

const ensureContact = `
INSERT INTO contacts (id, workspace_id, phone_e164, updated_at)
VALUES (@id, @workspace_id, @phone_e164, @updated_at)
ON CONFLICT (workspace_id, phone_e164) DO NOTHING`

const updateStates = `
UPDATE contacts
SET dnd_status = @dnd_status, consent_status = @consent_status, updated_at = @updated_at
WHERE workspace_id = @workspace_id AND id = @id`

// Record changes one state of a number and appends the record to the workspace's chain, in one
// transaction. The lock of the contact keeps the records of a number in order.
//
// A change with a call id is recorded once per call. ifUnknown decides what happens if the number
// has no contact.
func (s *Store) Record(ctx context.Context, ch contacts.Change, ifUnknown UnknownNumber) (changed contacts.Contact,
	err error) {
	return s.recordChange(ctx, ch, ifUnknown, nil)
}

// recordChange does the work of Record. If afterChange is not nil, recordChange calls it after the
// change. afterChange can add statements to the same transaction.
func (s *Store) recordChange(ctx context.Context, ch contacts.Change, ifUnknown UnknownNumber,
	afterChange func(*pgx.Batch, contacts.Contact) error) (changed contacts.Contact, err error) {
	err = pg.InPipeline(ctx, s.pool, func(tx *pg.Pipeline) (err error) {
		changed, err = s.recordIn(ctx, tx, ch, ifUnknown, afterChange)
		return err
	})
	if err != nil && !errors.Is(err, pg.ErrNotFound) {
		return changed, fmt.Errorf("insert consent record: %w", err)
	}
	return changed, err
}

// recordIn does the work of recordChange in a transaction. The caller must not have locked the head
// of a chain in this transaction.
func (s *Store) recordIn(ctx context.Context, tx *pg.Pipeline, ch contacts.Change, ifUnknown UnknownNumber,
	afterChange func(*pgx.Batch, contacts.Contact) error) (changed contacts.Contact, err error) {
	locked, err := lockNumber(ctx, tx, ch, ifUnknown)
	if err != nil {
		return changed, err
	}
	if changed = locked.contact; locked.alreadyRecorded {
		return changed, nil
	}
	c := s.chainAt(ch.WorkspaceID, locked.head)
	var before, after string
	changed, before, after = changed.Apply(ch.Kind)
	changed.UpdatedAt = c.now
	batch := &pgx.Batch{}
	batch.Queue(updateStates, pg.Args{
		"workspace_id": changed.WorkspaceID, "id": changed.ID, "dnd_status": changed.DND, "consent_status": changed.Consent,
		"updated_at": c.now,
	})
	if err := c.appendRow(batch, recordRow(changed, ch, before, after)); err != nil {
		return changed, err
	}
	c.updateHead(batch)
	if afterChange != nil {
		if err := afterChange(batch, changed); err != nil {
			return changed, err
		}
	}
	tx.QueueBatch(batch) // the batch is sent together with COMMIT, to save a round trip
	return changed, nil
}

// lockedNumber is the contact and the head of its chain, both locked.
type lockedNumber struct {
	contact contacts.Contact
	head    headRow
	// alreadyRecorded is true if the change of this call is already recorded.
	alreadyRecorded bool
}

// lockNumber locks the contact and then the head, in one round trip.
func lockNumber(ctx context.Context, tx *pg.Pipeline, ch contacts.Change, ifUnknown UnknownNumber) (found lockedNumber,
	err error) {
	batch := &pgx.Batch{}
	args := pg.Args{"workspace_id": ch.WorkspaceID, "phone_e164": ch.Number, "call_id": ch.CallID, "kind": ch.Kind}
	if ifUnknown == CreateUnknown {
		id, err := uuid.NewV7()
		if err != nil {
			return found, fmt.Errorf("make contact id: %w", err)
		}
		batch.Queue(ensureContact, pg.Args{
			"id": id, "workspace_id": ch.WorkspaceID, "phone_e164": ch.Number, "updated_at": page.TimeOf(id),
		})
	}
	known := true
	batch.Queue(contactByNumber+` FOR UPDATE`, args).Query(func(rows pgx.Rows) (err error) {
		found.contact, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[contacts.Contact])
		if errors.Is(err, pgx.ErrNoRows) {
			known = false
			return nil
		}
		return err
	})
	batch.Queue(lockHead, args).Query(func(rows pgx.Rows) (err error) {
		found.head, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[headRow])
		return err
	})
	if ch.CallID != uuid.Nil {
		batch.Queue(callRecorded, args).QueryRow(func(row pgx.Row) error { return row.Scan(&found.alreadyRecorded) })
	}
	if err := tx.RunBatch(ctx, batch); err != nil {
		return found, fmt.Errorf("lock contact and head: %w", err)
	}
	if !known {
		return found, pg.ErrNotFound
	}
	return found, nil
}

const recordColumns = `id, coalesce(phone_e164, '') AS phone_e164, contact_id, kind, source, actor, reason, evidence,
    coalesce(before, '') AS before, coalesce(after, '') AS after, occurred_at`

const listRecords = `
SELECT ` + recordColumns + `
FROM consent_records
WHERE workspace_id = @workspace_id
  AND (@after::uuid IS NULL OR id < @after)
  AND (@phone_e164::text IS NULL OR consent_records.phone_e164 = @phone_e164 OR id IN (
      SELECT i.record_id FROM opt_out_imports i
      WHERE i.workspace_id = @workspace_id AND i.record_id IS NOT NULL
        AND EXISTS (SELECT 1 FROM opt_out_import_numbers n WHERE n.import_id = i.id AND n.phone_e164 = @phone_e164)))
ORDER BY id DESC
LIMIT @rows`

const recordCursor = `
SELECT EXISTS (SELECT 1 FROM consent_records WHERE workspace_id = @workspace_id AND id = @after)`

// Records returns one page of the consent ledger, newest first. For a number it includes the
// records of imports that contain it. An empty number means all records.
func (s *Store) Records(ctx context.Context, workspace uuid.UUID, number phone.Number,
	p page.Request) ([]contacts.Record, error) {
	args := pgx.NamedArgs{"workspace_id": workspace, "after": orNull(p.After), "phone_e164": orNull(number),
		"rows": p.Rows()}
	if err := s.checkCursor(ctx, recordCursor, p, args); err != nil {
		return nil, err
	}
	records, err := pg.Many[contacts.Record](ctx, s.pool, listRecords, args)
	if err != nil {
		return nil, fmt.Errorf("list consent records: %w", err)
	}
	return records, nil
}

const recordByID = `
SELECT ` + recordColumns + `
FROM consent_records
WHERE workspace_id = @workspace_id AND id = @id`

// RecordByID returns one record, or pg.ErrNotFound.
func (s *Store) RecordByID(ctx context.Context, workspace, id uuid.UUID) (contacts.Record, error) {
	record, err := pg.One[contacts.Record](ctx, s.pool, recordByID, pgx.NamedArgs{"workspace_id": workspace, "id": id})
	if err != nil {
		return record, fmt.Errorf("read consent record: %w", err)
	}
	return record, nil
}

const deletePreChecks = `
DELETE FROM pre_checks WHERE created_at < now() - make_interval(secs => @seconds)`

// DeletePreChecks deletes stored pre-checks that are older than keepTime and returns their number.
func (s *Store) DeletePreChecks(ctx context.Context, keepTime time.Duration) (int64, error) {
	tag, err := s.pool.Exec(ctx, deletePreChecks, pgx.NamedArgs{"seconds": keepTime.Seconds()})
	if err != nil {
		return 0, fmt.Errorf("delete old pre-checks: %w", err)
	}
	return tag.RowsAffected(), nil
}
