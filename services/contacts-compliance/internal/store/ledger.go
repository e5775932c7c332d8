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

// headRow is a workspace's head, locked.
type headRow struct {
	Seq int64  `db:"seq"`
	MAC []byte `db:"mac"`
	// Now is the database's clock, never before that of the row before.
	Now time.Time `db:"now"`
}

// lockHead makes the head of a new chain and locks that of an old one. It comes last of all locks.
const lockHead = `
INSERT INTO consent_heads AS h (workspace_id, seq, mac, moved_at, key_id, sum)
VALUES (@workspace_id, 0, '', '-infinity', '', '')
ON CONFLICT (workspace_id) DO UPDATE SET seq = h.seq
RETURNING seq, mac, greatest(clock_timestamp(), moved_at) AS now`

const moveHead = `
UPDATE consent_heads
SET seq = @seq, mac = @mac, moved_at = @moved_at, key_id = @key_id, sum = @sum
WHERE workspace_id = @workspace_id`

const rowColumns = `workspace_id, seq, recorded_at, id, phone_e164, contact_id, kind, source, actor, reason, evidence, call_id,
    before, after, occurred_at, key_id, mac`

const appendRow = `
INSERT INTO consent_records (` + rowColumns + `)
VALUES (@workspace_id, @seq, @recorded_at, @id, @phone_e164, @contact_id, @kind, @source, @actor, @reason, @evidence, @call_id,
        @before, @after, @occurred_at, @key_id, @mac)`

func rowArgs(r consentchain.Row) pg.Args {
	args := pg.Args{
		"workspace_id": r.WorkspaceID, "seq": r.Seq, "recorded_at": r.RecordedAt, "id": r.ID, "phone_e164": r.Number, "contact_id": r.ContactID,
		"kind": r.Kind, "source": r.Source, "actor": r.Actor, "reason": r.Reason, "evidence": nil, "call_id": r.CallID,
		"before": r.Before, "after": r.After, "occurred_at": r.OccurredAt, "key_id": r.KeyID, "mac": r.MAC,
	}
	if r.Evidence != nil {
		args["evidence"] = []byte(r.Evidence)
	}
	return args
}

// chain appends to the chain whose head the transaction has locked.
type chain struct {
	keys      *consentchain.Keys
	workspace uuid.UUID
	at        consentchain.Link
	now       time.Time
}

func (s *Store) lockChain(ctx context.Context, tx pgx.Tx, workspace uuid.UUID) (*chain, error) {
	head, err := pg.One[headRow](ctx, tx, lockHead, pgx.NamedArgs{"workspace_id": workspace})
	if err != nil {
		return nil, fmt.Errorf("lock head of workspace %s: %w", workspace, err)
	}
	return s.chainAt(workspace, head), nil
}

func (s *Store) chainAt(workspace uuid.UUID, head headRow) *chain {
	c := &chain{keys: s.keys, workspace: workspace, now: head.Now}
	if head.Seq > 0 {
		c.at = consentchain.Link{Seq: head.Seq, MAC: head.MAC}
	}
	return c
}

// queue signs the row behind the last and queues it, the head with it. Rows without an id get one; what occurred at no time occurred now.
func (c *chain) queue(batch *pgx.Batch, row consentchain.Row) error {
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
	c.at = row.Sign(c.keys, c.at)
	batch.Queue(appendRow, rowArgs(row))
	return nil
}

// close queues the head's move to where the chain is now.
func (c *chain) close(batch *pgx.Batch) {
	mark := c.keys.Head(c.workspace, c.at)
	batch.Queue(moveHead, pg.Args{
		"workspace_id": c.workspace, "seq": mark.Seq, "mac": mark.MAC, "moved_at": c.now, "key_id": mark.KeyID, "sum": mark.Sum,
	})
}

const callHeard = `
SELECT EXISTS (SELECT 1 FROM consent_records WHERE workspace_id = @workspace_id AND call_id = @call_id AND kind = @kind)`

// rowOf is a change as the ledger keeps it.
func rowOf(c contacts.Contact, ch contacts.Change, before, after string) consentchain.Row {
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

// cleanedMeanwhile opts out again whom a removal made clean since the import began: when the record stands, all of its numbers are opted out.
const cleanedMeanwhile = `
UPDATE contacts c SET dnd_status = 'dnd', updated_at = now()
WHERE c.workspace_id = @workspace_id AND c.dnd_status <> 'dnd' AND c.phone_e164 IN (
    SELECT r.phone_e164 FROM consent_records r JOIN opt_out_import_numbers n ON n.import_id = @id AND n.phone_e164 = r.phone_e164
    WHERE r.workspace_id = @workspace_id AND r.seq > @since_seq AND r.kind = 'opt_out_removed')`

// FinishImport writes the one record of an import all of whose numbers are opted out, and ends it.
func (s *Store) FinishImport(ctx context.Context, i *Import) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make record id: %w", err)
	}
	evidence, err := json.Marshal(consentchain.Imported{
		ImportID: i.ID, FileSHA256: *i.FileSHA256, ListSHA256: *i.ListSHA256, Numbers: i.Numbers, Lines: i.Lines, Bad: i.Bad,
	})
	if err != nil {
		return fmt.Errorf("encode evidence of import %s: %w", i.ID, err)
	}
	after := string(contacts.OptedOut)
	next := *i
	next.Status, next.RecordID = Done, &id
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := i.hold(ctx, tx); err != nil {
			return err
		}
		c, err := s.lockChain(ctx, tx, i.WorkspaceID)
		if err != nil {
			return err
		}
		args := pg.Args{"workspace_id": i.WorkspaceID, "id": i.ID, "since_seq": i.SinceSeq}
		if _, err := tx.Exec(ctx, cleanedMeanwhile, args); err != nil {
			return fmt.Errorf("opt out again numbers of import %s: %w", i.ID, err)
		}
		batch := &pgx.Batch{}
		row := consentchain.Row{ID: id, Kind: string(contacts.OptOut), Source: consentchain.FromImport, Actor: i.Actor, Reason: i.Reason, Evidence: evidence, After: &after}
		if err := c.queue(batch, row); err != nil {
			return err
		}
		c.close(batch)
		batch.Queue(forgetParts, args)
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("write record of import %s: %w", i.ID, err)
		}
		return keep(ctx, tx, &next)
	})
	if err == nil {
		*i = next
	}
	return err
}
