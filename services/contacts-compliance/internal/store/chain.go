package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/contacts-compliance/internal/consentchain"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
)

// headRow is a locked row of consent_heads.
type headRow struct {
	Seq int64  `db:"seq"`
	MAC []byte `db:"mac"`
	// Now is the time of the database server. It is never before the time of the last row.
	Now time.Time `db:"now"`
}

// lockHead creates or locks the head of a chain. A transaction that changes one number locks the
// contact first and the head last.
const lockHead = `
INSERT INTO consent_heads AS h (workspace_id, seq, mac, moved_at, key_id, sum)
VALUES (@workspace_id, 0, '', '-infinity', '', '')
ON CONFLICT (workspace_id) DO UPDATE SET seq = h.seq
RETURNING seq, mac, greatest(clock_timestamp(), moved_at) AS now`

const setHead = `
UPDATE consent_heads
SET seq = @seq, mac = @mac, moved_at = @moved_at, key_id = @key_id, sum = @sum
WHERE workspace_id = @workspace_id`

const rowColumns = `workspace_id, seq, recorded_at, id, phone_e164, contact_id, kind, source, actor, reason,
	evidence, call_id,
    before, after, occurred_at, key_id, mac`

const insertRecord = `
INSERT INTO consent_records (` + rowColumns + `)
VALUES (@workspace_id, @seq, @recorded_at, @id, @phone_e164, @contact_id, @kind, @source, @actor, @reason, @evidence,
        @call_id,
        @before, @after, @occurred_at, @key_id, @mac)`

func rowArgs(r consentchain.Row) pg.Args {
	args := pg.Args{
		"workspace_id": r.WorkspaceID, "seq": r.Seq, "recorded_at": r.RecordedAt, "id": r.ID, "phone_e164": r.Number,
		"contact_id": r.ContactID,
		"kind":       r.Kind, "source": r.Source, "actor": r.Actor, "reason": r.Reason, "evidence": nil, "call_id": r.CallID,
		"before": r.Before, "after": r.After, "occurred_at": r.OccurredAt, "key_id": r.KeyID, "mac": r.MAC,
	}
	if r.Evidence != nil {
		args["evidence"] = []byte(r.Evidence)
	}
	return args
}

// chainWriter appends rows to a consent chain whose head is locked.
type chainWriter struct {
	keys      *consentchain.Keys
	workspace uuid.UUID
	last      consentchain.Link
	now       time.Time
}

func (s *Store) lockChain(ctx context.Context, tx pgx.Tx, workspace uuid.UUID) (*chainWriter, error) {
	head, err := pg.One[headRow](ctx, tx, lockHead, pgx.NamedArgs{"workspace_id": workspace})
	if err != nil {
		return nil, fmt.Errorf("lock head of workspace %s: %w", workspace, err)
	}
	return s.chainAt(workspace, head), nil
}

func (s *Store) chainAt(workspace uuid.UUID, head headRow) *chainWriter {
	c := &chainWriter{keys: s.keys, workspace: workspace, now: head.Now}
	if head.Seq > 0 {
		c.last = consentchain.Link{Seq: head.Seq, MAC: head.MAC}
	}
	return c
}

// appendRow signs a row and adds its INSERT to the batch. If the row has no id, it gets a new one.
// A zero OccurredAt becomes the current time.
func (c *chainWriter) appendRow(batch *pgx.Batch, row consentchain.Row) error {
	if row.ID == uuid.Nil {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make record id: %w", err)
		}
		row.ID = id
	}
	row.WorkspaceID, row.RecordedAt = c.workspace, c.now
	if row.OccurredAt.IsZero() {
		row.OccurredAt = c.now
	}
	c.last = row.Sign(c.keys, c.last)
	batch.Queue(insertRecord, rowArgs(row))
	return nil
}

func (c *chainWriter) updateHead(batch *pgx.Batch) {
	head := c.keys.SignHead(c.workspace, c.last)
	batch.Queue(setHead, pg.Args{
		"workspace_id": c.workspace, "seq": head.Seq, "mac": head.MAC, "moved_at": c.now, "key_id": head.KeyID,
		"sum": head.Sum,
	})
}

const callRecorded = `
SELECT EXISTS (SELECT 1 FROM consent_records WHERE workspace_id = @workspace_id AND call_id = @call_id
    AND kind = @kind)`

func recordRow(c contacts.Contact, ch contacts.Change, before, after string) consentchain.Row {
	number, id := string(c.Number), c.ID
	row := consentchain.Row{
		Number: &number, ContactID: &id, Kind: string(ch.Kind), Source: ch.Source, Actor: ch.Actor, Reason: ch.Reason,
		Evidence: ch.Evidence, Before: &before, After: &after, OccurredAt: ch.OccurredAt,
	}
	if ch.CallID != uuid.Nil {
		row.CallID = &ch.CallID
	}
	return row
}

// optOutAgain opts out those numbers of the list whose opt-out was removed while the import ran.
const optOutAgain = `
UPDATE contacts c SET dnd_status = 'dnd', updated_at = now()
WHERE c.workspace_id = @workspace_id AND c.dnd_status <> 'dnd' AND c.phone_e164 IN (
    SELECT r.phone_e164 FROM consent_records r JOIN opt_out_import_numbers n ON n.import_id = @id
        AND n.phone_e164 = r.phone_e164
    WHERE r.workspace_id = @workspace_id AND r.seq > @since_seq AND r.kind = 'opt_out_removed')`

// FinishImport writes the single consent record of an import and ends the import. All numbers of
// the import must be opted out before.
func (s *Store) FinishImport(ctx context.Context, i *Import) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make record id: %w", err)
	}
	evidence, err := json.Marshal(consentchain.ImportEvidence{
		ImportID: i.ID, FileSHA256: *i.FileSHA256, ListSHA256: *i.ListSHA256, Numbers: i.Numbers, Lines: i.Lines, Bad: i.Bad,
	})
	if err != nil {
		return fmt.Errorf("encode evidence of import %s: %w", i.ID, err)
	}
	after := string(contacts.OptedOut)
	next := *i
	next.Status, next.RecordID = Done, &id
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := i.lock(ctx, tx); err != nil {
			return err
		}
		c, err := s.lockChain(ctx, tx, i.WorkspaceID)
		if err != nil {
			return err
		}
		args := pg.Args{"workspace_id": i.WorkspaceID, "id": i.ID, "since_seq": i.SinceSeq}
		if _, err := tx.Exec(ctx, optOutAgain, args); err != nil {
			return fmt.Errorf("opt out numbers of import %s again: %w", i.ID, err)
		}
		batch := &pgx.Batch{}
		row := consentchain.Row{ID: id, Kind: string(contacts.OptOut), Source: consentchain.SourceImport, Actor: i.Actor,
			Reason: i.Reason, Evidence: evidence, After: &after}
		if err := c.appendRow(batch, row); err != nil {
			return err
		}
		c.updateHead(batch)
		batch.Queue(deleteParts, args)
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("insert record of import %s: %w", i.ID, err)
		}
		return saveImport(ctx, tx, &next)
	})
	if err == nil {
		*i = next
	}
	return err
}
