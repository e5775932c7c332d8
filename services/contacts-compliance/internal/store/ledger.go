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
	// Unchained says that records from before the chain wait to go into it; only a chain without rows takes them.
	Unchained bool `db:"unchained"`
}

// lockHead makes the head of a new chain and locks that of an old one. It comes last of all locks.
const lockHead = `
INSERT INTO consent_heads AS h (workspace_id, seq, mac, moved_at, key_id, sum)
VALUES (@workspace_id, 0, '', '-infinity', '', '')
ON CONFLICT (workspace_id) DO UPDATE SET seq = h.seq
RETURNING seq, mac, greatest(clock_timestamp(), moved_at) AS now,
          seq = 0 AND EXISTS (SELECT 1 FROM consent_unchained u WHERE u.workspace_id = h.workspace_id) AS unchained`

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
	return s.chainAt(ctx, tx, workspace, head)
}

func (s *Store) chainAt(ctx context.Context, tx pgx.Tx, workspace uuid.UUID, head headRow) (*chain, error) {
	c := &chain{keys: s.keys, workspace: workspace, now: head.Now}
	if head.Seq > 0 {
		c.at = consentchain.Link{Seq: head.Seq, MAC: head.MAC}
	}
	if head.Unchained {
		return c, c.begin(ctx, tx)
	}
	return c, nil
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

const unchained = `
SELECT workspace_id, 0::bigint AS seq, now() AS recorded_at, id, phone_e164, contact_id, kind, source, actor, reason, evidence, call_id,
       before, after, occurred_at, '' AS key_id, ''::bytea AS mac
FROM consent_unchained
WHERE workspace_id = @workspace_id AND (@after::uuid IS NULL OR id > @after)
ORDER BY id
LIMIT @rows`

const forgetUnchained = `
DELETE FROM consent_unchained WHERE workspace_id = @workspace_id`

// begin puts the records that were written before there were chains into the chain, behind a row that says so.
func (c *chain) begin(ctx context.Context, tx pgx.Tx) error {
	digest := consentchain.NewDigest()
	if err := c.eachUnchained(ctx, tx, func(_ *pgx.Batch, row consentchain.Row) error { digest.Add(row); return nil }); err != nil {
		return err
	}
	evidence, err := json.Marshal(consentchain.Beginning{Rows: digest.Rows(), SHA256: digest.Hex()})
	if err != nil {
		return fmt.Errorf("encode beginning of the chain of workspace %s: %w", c.workspace, err)
	}
	batch := &pgx.Batch{}
	if err := c.queue(batch, consentchain.Row{Kind: consentchain.Started, Source: "service", Actor: "service:contacts-compliance", Evidence: evidence}); err != nil {
		return err
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("begin chain of workspace %s: %w", c.workspace, err)
	}
	if err := c.eachUnchained(ctx, tx, c.queue); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, forgetUnchained, pg.Args{"workspace_id": c.workspace}); err != nil {
		return fmt.Errorf("take records of workspace %s into its chain: %w", c.workspace, err)
	}
	return nil
}

const unchainedBatch = 1000

func (c *chain) eachUnchained(ctx context.Context, tx pgx.Tx, do func(*pgx.Batch, consentchain.Row) error) error {
	var last uuid.UUID
	for {
		args := pgx.NamedArgs{"workspace_id": c.workspace, "after": orNull(last), "rows": unchainedBatch}
		rows, err := pg.Many[consentchain.Row](ctx, tx, unchained, args)
		if err != nil {
			return fmt.Errorf("read records from before the chain of workspace %s: %w", c.workspace, err)
		}
		batch := &pgx.Batch{}
		for _, row := range rows {
			if err := do(batch, row); err != nil {
				return err
			}
			last = row.ID
		}
		if batch.Len() > 0 {
			if err := tx.SendBatch(ctx, batch).Close(); err != nil {
				return fmt.Errorf("chain records of workspace %s: %w", c.workspace, err)
			}
		}
		if len(rows) < unchainedBatch {
			return nil
		}
	}
}

const waiting = `
SELECT DISTINCT u.workspace_id FROM consent_unchained u
WHERE NOT EXISTS (SELECT 1 FROM consent_heads h WHERE h.workspace_id = u.workspace_id)
LIMIT 1000`

// BeginChains puts what was written before there were chains into them, a workspace at a time, and says of how many. Replicas may
// do so at once; again, it changes nothing.
func (s *Store) BeginChains(ctx context.Context) (begun int, err error) {
	for {
		workspaces, err := pg.Values[uuid.UUID](ctx, s.pool, waiting, nil)
		if err != nil {
			return begun, fmt.Errorf("look for records without a chain: %w", err)
		}
		if len(workspaces) == 0 {
			return begun, nil
		}
		for _, workspace := range workspaces {
			err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
				c, err := s.lockChain(ctx, tx, workspace)
				if err != nil || c.at.Seq == 0 {
					return err
				}
				batch := &pgx.Batch{}
				c.close(batch)
				return tx.SendBatch(ctx, batch).Close()
			})
			if err != nil {
				return begun, fmt.Errorf("begin chain of workspace %s: %w", workspace, err)
			}
			begun++
		}
	}
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
