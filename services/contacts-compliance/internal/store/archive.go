// Package archive owns the SQL over records as a whole: the walk over every chain of consent records, the heads, and the months that
// records and decisions lie in. What concerns one number or one call is package store's.

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/contacts-compliance/internal/consentchain"
)

// Archive reads and keeps the records of the schema contacts_compliance.
type Archive struct {
	pool *pgxpool.Pool
	keys *consentchain.Keys
}

// NewArchive makes an archive over a pool that runs as the service's role.
func NewArchive(pool *pgxpool.Pool, keys *consentchain.Keys) *Archive {
	return &Archive{pool: pool, keys: keys}
}

// Head is where a workspace's chain ends.
type Head struct {
	WorkspaceID uuid.UUID `db:"workspace_id"`
	Seq         int64     `db:"seq"`
	MAC         []byte    `db:"mac"`
	MovedAt     time.Time `db:"moved_at"`
}

const movedHeads = `
SELECT workspace_id, seq, mac, CASE WHEN isfinite(moved_at) THEN moved_at ELSE now() END AS moved_at FROM consent_heads
WHERE seq > 0 AND (@everything OR moved_at > @since OR NOT isfinite(moved_at))
ORDER BY workspace_id`

// MovedHeads calls each for every chain that grew after the instant, on the database's clock; a zero one: for every chain.
func (a *Archive) MovedHeads(ctx context.Context, since time.Time, each func(Head) error) error {
	rows, err := a.pool.Query(ctx, movedHeads, pgx.NamedArgs{"since": since, "everything": since.IsZero()})
	if err != nil {
		return fmt.Errorf("read heads: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		head, err := pgx.RowToStructByName[Head](rows)
		if err != nil {
			return fmt.Errorf("read head: %w", err)
		}
		if err := each(head); err != nil {
			return err
		}
	}
	return rows.Err()
}

// chainPlace is a head or a start as it is stored.
type chainPlace struct {
	WorkspaceID uuid.UUID `db:"workspace_id"`
	Seq         int64     `db:"seq"`
	MAC         []byte    `db:"mac"`
	KeyID       string    `db:"key_id"`
	Sum         []byte    `db:"sum"`
}

func (p chainPlace) mark() *consentchain.Mark {
	return &consentchain.Mark{Link: consentchain.Link{Seq: p.Seq, MAC: p.MAC}, KeyID: p.KeyID, Sum: p.Sum}
}

const archiveColumns = `workspace_id, seq, recorded_at, id, phone_e164, contact_id, kind, source, actor, reason, evidence, call_id,
       before, after, occurred_at, key_id, mac`

const (
	everyHead  = `SELECT workspace_id, seq, mac, key_id, sum FROM consent_heads`
	everyStart = `SELECT workspace_id, seq, mac, key_id, sum FROM consent_starts`
	everyRow   = `
SELECT ` + archiveColumns + `
FROM consent_records
ORDER BY workspace_id, seq`
)

// Found is what a walk over all chains came to.
type Found struct {
	Chains, Rows int64
	Breaks       []consentchain.Break
}

// mostBreaks bounds what is listed.
const mostBreaks = 1000

// Verify walks over every chain, all of it as the database was at one instant, and holds each against its head and what the log of heads
// knows, the list of every import against its record, and the states of contacts against their last records. It keeps one head of each workspace and the record of each import in memory.
// Every row written before told must be known there; a zero one: there is no log.
func (a *Archive) Verify(ctx context.Context, known map[uuid.UUID]consentchain.Link, told time.Time) (found Found, err error) {
	still := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, a.pool, still, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout = 0`); err != nil {
			return fmt.Errorf("take time: %w", err)
		}
		w := walk{keys: a.keys, known: known, told: told, found: &found}
		if w.heads, err = marks(ctx, tx, everyHead); err != nil {
			return err
		}
		if w.starts, err = marks(ctx, tx, everyStart); err != nil {
			return err
		}
		if err := w.rows(ctx, tx); err != nil {
			return err
		}
		w.without()
		if err := w.lists(ctx, tx); err != nil {
			return err
		}
		return w.states(ctx, tx)
	})
	return found, err
}

func marks(ctx context.Context, tx pgx.Tx, sql string) (map[uuid.UUID]*consentchain.Mark, error) {
	places, err := pg.Many[chainPlace](ctx, tx, sql, nil)
	if err != nil {
		return nil, fmt.Errorf("read heads and starts: %w", err)
	}
	of := make(map[uuid.UUID]*consentchain.Mark, len(places))
	for _, p := range places {
		of[p.WorkspaceID] = p.mark()
	}
	return of, nil
}

// walk goes over the rows of all workspaces, one workspace after the other.
type walk struct {
	keys          *consentchain.Keys
	known         map[uuid.UUID]consentchain.Link
	told          time.Time
	heads, starts map[uuid.UUID]*consentchain.Mark
	found         *Found
	// last is the chain's last row that the log of heads must know; its Seq is 0 where there is none.
	last consentchain.Row
	// imports are the records that speak of a list.
	imports []consentchain.Row
}

func (w *walk) broke(b consentchain.Break) {
	if len(w.found.Breaks) < mostBreaks {
		w.found.Breaks = append(w.found.Breaks, b)
	}
}

func (w *walk) end(workspace uuid.UUID, chain *consentchain.Chain) {
	if chain == nil {
		return
	}
	w.found.Chains++
	if broken := chain.End(w.heads[workspace]); broken != nil {
		w.broke(*broken)
	} else if at := w.known[workspace].Seq; w.last.Seq > at {
		w.broke(consentchain.Break{WorkspaceID: workspace, Seq: w.last.Seq, ID: w.last.ID, Why: fmt.Sprintf(
			"was written at %s, and the head log has %d rows: is the service running, and is this its log?",
			w.last.RecordedAt.UTC().Format(time.RFC3339), at)})
	}
	w.last = consentchain.Row{}
	delete(w.heads, workspace)
	delete(w.starts, workspace)
	delete(w.known, workspace)
}

func (w *walk) begin(workspace uuid.UUID) *consentchain.Chain {
	return consentchain.NewChain(workspace, w.keys, w.starts[workspace], w.known[workspace])
}

func (w *walk) rows(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, everyRow)
	if err != nil {
		return fmt.Errorf("read consent records: %w", err)
	}
	defer rows.Close()
	var workspace uuid.UUID
	var chain *consentchain.Chain
	for rows.Next() {
		row, err := pgx.RowToStructByName[consentchain.Row](rows)
		if err != nil {
			return fmt.Errorf("read consent record: %w", err)
		}
		if chain == nil || row.WorkspaceID != workspace {
			w.end(workspace, chain)
			workspace, chain = row.WorkspaceID, w.begin(row.WorkspaceID)
		}
		w.found.Rows++
		chain.Next(row)
		if row.RecordedAt.Before(w.told) {
			w.last = row
		}
		if row.Source == consentchain.FromImport && row.Number == nil {
			w.imports = append(w.imports, row)
		}
	}
	w.end(workspace, chain)
	return rows.Err()
}

// without judges the chains that somebody knows of and that have no rows left.
func (w *walk) without() {
	left := map[uuid.UUID]bool{}
	for _, of := range []map[uuid.UUID]*consentchain.Mark{w.heads, w.starts} {
		for workspace := range of {
			left[workspace] = true
		}
	}
	for workspace := range w.known {
		left[workspace] = true
	}
	for workspace := range left {
		w.end(workspace, w.begin(workspace))
	}
}

const listOf = `
SELECT phone_e164 FROM opt_out_import_numbers WHERE import_id = @id ORDER BY phone_e164`

// lists sums up the list of every import again.
func (w *walk) lists(ctx context.Context, tx pgx.Tx) error {
	for _, row := range w.imports {
		var said consentchain.Imported
		if err := json.Unmarshal(row.Evidence, &said); err != nil {
			w.broke(consentchain.Break{WorkspaceID: row.WorkspaceID, Seq: row.Seq, ID: row.ID, Why: "its evidence names no list"})
			continue
		}
		rows, err := tx.Query(ctx, listOf, pgx.NamedArgs{"id": said.ImportID})
		if err != nil {
			return fmt.Errorf("read list of import %s: %w", said.ImportID, err)
		}
		list, number := consentchain.NewList(), ""
		if _, err := pgx.ForEachRow(rows, []any{&number}, func() error { list.Add(number); return nil }); err != nil {
			return fmt.Errorf("read list of import %s: %w", said.ImportID, err)
		}
		if list.Hex() != said.ListSHA256 {
			w.broke(consentchain.Break{WorkspaceID: row.WorkspaceID, Seq: row.Seq, ID: row.ID, Why: "the numbers of its list are not those that were imported"})
		}
	}
	return nil
}
