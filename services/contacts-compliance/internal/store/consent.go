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
SET dnd_status = @dnd_status, consent_status = @consent_status, updated_at = @updated_at
WHERE workspace_id = @workspace_id AND id = @id`

// Record moves one state of a number and writes down why, in one commit: at the end of the workspace's chain (internal/ledger). The
// contact's row is locked first and the chain's head behind it, so records of one number stand in the order of their effects, and
// only writers of the same workspace wait for each other. A change that names a call happens once per call.
// A number never seen is created or pg.ErrNotFound, as unknown says.
func (s *Store) Record(ctx context.Context, ch contacts.Change, unknown Unknown) (changed contacts.Contact, err error) {
	return s.record(ctx, ch, unknown, nil)
}

// record is Record; also queues what is to be done in the same commit, of the contact as it is then.
func (s *Store) record(ctx context.Context, ch contacts.Change, unknown Unknown, also func(*pgx.Batch, contacts.Contact) error) (changed contacts.Contact, err error) {
	err = pg.InPipeline(ctx, s.pool, func(tx *pg.Pipeline) error {
		asked, err := askNumber(ctx, tx, ch, unknown)
		if err != nil {
			return err
		}
		if changed = asked.contact; asked.heard {
			return nil
		}
		c := s.chainAt(ch.WorkspaceID, asked.head)
		var before, after string
		changed, before, after = changed.Apply(ch.Kind)
		changed.UpdatedAt = c.now
		batch := &pgx.Batch{}
		batch.Queue(moveStates, pg.Args{
			"workspace_id": changed.WorkspaceID, "id": changed.ID, "dnd_status": changed.DND, "consent_status": changed.Consent, "updated_at": c.now,
		})
		if err := c.queue(batch, rowOf(changed, ch, before, after)); err != nil {
			return err
		}
		c.close(batch)
		if also != nil {
			if err := also(batch, changed); err != nil {
				return err
			}
		}
		tx.LaterAll(batch) // goes with COMMIT
		return nil
	})
	if err != nil && !errors.Is(err, pg.ErrNotFound) {
		return changed, fmt.Errorf("write consent record: %w", err)
	}
	return changed, err
}

// asked is what Record must know, all of it locked.
type asked struct {
	contact contacts.Contact
	head    headRow
	// heard says that the call's change stands in the ledger already.
	heard bool
}

// askNumber locks the contact, then the head, in one round trip.
func askNumber(ctx context.Context, tx *pg.Pipeline, ch contacts.Change, unknown Unknown) (found asked, err error) {
	batch := &pgx.Batch{}
	args := pg.Args{"workspace_id": ch.WorkspaceID, "phone_e164": ch.Number, "call_id": ch.CallID, "kind": ch.Kind}
	if unknown == CreateUnknown {
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
		batch.Queue(callHeard, args).QueryRow(func(row pgx.Row) error { return row.Scan(&found.heard) })
	}
	if err := tx.Ask(ctx, batch); err != nil {
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

// Records reads one page of the consent ledger, newest first: of a number, the imports that it stood in included; an empty number means all of them.
func (s *Store) Records(ctx context.Context, workspace uuid.UUID, number phone.Number, p page.Request) ([]contacts.Record, error) {
	args := pgx.NamedArgs{"workspace_id": workspace, "after": orNull(p.After), "phone_e164": orNull(number), "rows": p.Rows()}
	if err := s.knowCursor(ctx, recordCursor, p, args); err != nil {
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

// RecordByID reads one row of the consent ledger, or pg.ErrNotFound.
func (s *Store) RecordByID(ctx context.Context, workspace, id uuid.UUID) (contacts.Record, error) {
	record, err := pg.One[contacts.Record](ctx, s.pool, recordByID, pgx.NamedArgs{"workspace_id": workspace, "id": id})
	if err != nil {
		return record, fmt.Errorf("read consent record: %w", err)
	}
	return record, nil
}

const prunePreChecks = `
DELETE FROM pre_checks WHERE created_at < now() - make_interval(secs => @seconds)`

// PrunePreChecks forgets answers older than keep and says how many.
func (s *Store) PrunePreChecks(ctx context.Context, keep time.Duration) (int64, error) {
	tag, err := s.pool.Exec(ctx, prunePreChecks, pgx.NamedArgs{"seconds": keep.Seconds()})
	if err != nil {
		return 0, fmt.Errorf("prune pre-checks: %w", err)
	}
	return tag.RowsAffected(), nil
}
