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

// Archive contains the queries over the consent records and decisions of all workspaces:
// verification, heads and monthly partitions.
type Archive struct {
	pool *pgxpool.Pool
	keys *consentchain.Keys
}

// NewArchive creates an archive. The pool must use the database role of the service.
func NewArchive(pool *pgxpool.Pool, keys *consentchain.Keys) *Archive {
	return &Archive{pool: pool, keys: keys}
}

// Head is the last row of a workspace's chain.
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

// MovedHeads calls handleHead for every head that changed after changedSince, a time of the
// database's clock. If changedSince is zero, it calls handleHead for all heads.
func (a *Archive) MovedHeads(ctx context.Context, changedSince time.Time, handleHead func(Head) error) error {
	rows, err := a.pool.Query(ctx, movedHeads, pgx.NamedArgs{"since": changedSince, "everything": changedSince.IsZero()})
	if err != nil {
		return fmt.Errorf("read heads: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		head, err := pgx.RowToStructByName[Head](rows)
		if err != nil {
			return fmt.Errorf("read head: %w", err)
		}
		if err := handleHead(head); err != nil {
			return err
		}
	}
	return rows.Err()
}

// signedLinkRow is a row of consent_heads or consent_starts.
type signedLinkRow struct {
	WorkspaceID uuid.UUID `db:"workspace_id"`
	Seq         int64     `db:"seq"`
	MAC         []byte    `db:"mac"`
	KeyID       string    `db:"key_id"`
	Sum         []byte    `db:"sum"`
}

func (p signedLinkRow) link() *consentchain.SignedLink {
	return &consentchain.SignedLink{Link: consentchain.Link{Seq: p.Seq, MAC: p.MAC}, KeyID: p.KeyID, Sum: p.Sum}
}

const (
	allHeads   = `SELECT workspace_id, seq, mac, key_id, sum FROM consent_heads`
	allStarts  = `SELECT workspace_id, seq, mac, key_id, sum FROM consent_starts`
	allRecords = `
SELECT ` + rowColumns + `
FROM consent_records
ORDER BY workspace_id, seq`
)

// VerifyResult is the result of a verification of all chains.
type VerifyResult struct {
	Chains, Rows int64
	Breaks       []consentchain.Break
}

const maxBreaks = 1000

// Verify verifies every chain in one snapshot of the database. It compares each chain with its
// head, the head log, the lists of its imports, and the states of its contacts.
//
// loggedRows contains the last row of each chain in the head log. Every row that was written before
// loggedBefore must be in the log. If loggedBefore is zero, there is no head log.
func (a *Archive) Verify(ctx context.Context, loggedRows map[uuid.UUID]consentchain.Link,
	loggedBefore time.Time) (result VerifyResult, err error) {
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, a.pool, snapshot, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout = 0`); err != nil {
			return fmt.Errorf("set transaction options: %w", err)
		}
		w := verifier{keys: a.keys, logged: loggedRows, loggedBefore: loggedBefore, result: &result}
		if w.heads, err = readSignedLinks(ctx, tx, allHeads); err != nil {
			return err
		}
		if w.starts, err = readSignedLinks(ctx, tx, allStarts); err != nil {
			return err
		}
		if err := w.rows(ctx, tx); err != nil {
			return err
		}
		w.chainsWithoutRows()
		if err := w.importLists(ctx, tx); err != nil {
			return err
		}
		return w.states(ctx, tx)
	})
	return result, err
}

func readSignedLinks(ctx context.Context, tx pgx.Tx, sql string) (map[uuid.UUID]*consentchain.SignedLink, error) {
	rows, err := pg.Many[signedLinkRow](ctx, tx, sql, nil)
	if err != nil {
		return nil, fmt.Errorf("read heads and starts: %w", err)
	}
	of := make(map[uuid.UUID]*consentchain.SignedLink, len(rows))
	for _, p := range rows {
		of[p.WorkspaceID] = p.link()
	}
	return of, nil
}

type verifier struct {
	keys          *consentchain.Keys
	logged        map[uuid.UUID]consentchain.Link
	loggedBefore  time.Time
	heads, starts map[uuid.UUID]*consentchain.SignedLink
	result        *VerifyResult
	// lastRequired is the newest row of the current chain that is so old that the head log must
	// already contain it. Its Seq is 0 if there is no such row.
	lastRequired consentchain.Row
	imports      []consentchain.Row
}

func (w *verifier) addBreak(b consentchain.Break) {
	if len(w.result.Breaks) < maxBreaks {
		w.result.Breaks = append(w.result.Breaks, b)
	}
}

func (w *verifier) finishChain(workspace uuid.UUID, chain *consentchain.Verifier) {
	if chain == nil {
		return
	}
	w.result.Chains++
	if broken := chain.Finish(w.heads[workspace]); broken != nil {
		w.addBreak(*broken)
	} else if at := w.logged[workspace].Seq; w.lastRequired.Seq > at {
		w.addBreak(consentchain.Break{WorkspaceID: workspace, Seq: w.lastRequired.Seq, ID: w.lastRequired.ID,
			Why: fmt.Sprintf(
				"was written at %s, and the head log has %d rows: check that the service runs and writes this log",
				w.lastRequired.RecordedAt.UTC().Format(time.RFC3339), at)})
	}
	w.lastRequired = consentchain.Row{}
	delete(w.heads, workspace)
	delete(w.starts, workspace)
	delete(w.logged, workspace)
}

func (w *verifier) newChain(workspace uuid.UUID) *consentchain.Verifier {
	return consentchain.NewVerifier(workspace, w.keys, w.starts[workspace], w.logged[workspace])
}

func (w *verifier) rows(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, allRecords)
	if err != nil {
		return fmt.Errorf("read consent records: %w", err)
	}
	defer rows.Close()
	var workspace uuid.UUID
	var chain *consentchain.Verifier
	for rows.Next() {
		row, err := pgx.RowToStructByName[consentchain.Row](rows)
		if err != nil {
			return fmt.Errorf("read consent record: %w", err)
		}
		if chain == nil || row.WorkspaceID != workspace {
			w.finishChain(workspace, chain)
			workspace, chain = row.WorkspaceID, w.newChain(row.WorkspaceID)
		}
		w.result.Rows++
		chain.Add(row)
		if row.RecordedAt.Before(w.loggedBefore) {
			w.lastRequired = row
		}
		if row.Source == consentchain.SourceImport && row.Number == nil {
			w.imports = append(w.imports, row)
		}
	}
	w.finishChain(workspace, chain)
	return rows.Err()
}

// chainsWithoutRows verifies the chains that have no rows, but have a stored head, a stored start,
// or a line in the head log.
func (w *verifier) chainsWithoutRows() {
	left := map[uuid.UUID]bool{}
	for _, of := range []map[uuid.UUID]*consentchain.SignedLink{w.heads, w.starts} {
		for workspace := range of {
			left[workspace] = true
		}
	}
	for workspace := range w.logged {
		left[workspace] = true
	}
	for workspace := range left {
		w.finishChain(workspace, w.newChain(workspace))
	}
}

const importNumbers = `
SELECT phone_e164 FROM opt_out_import_numbers WHERE import_id = @id ORDER BY phone_e164`

// importLists compares the digest of the list of each import with its record.
func (w *verifier) importLists(ctx context.Context, tx pgx.Tx) error {
	for _, row := range w.imports {
		var evidence consentchain.ImportEvidence
		if err := json.Unmarshal(row.Evidence, &evidence); err != nil {
			w.addBreak(consentchain.Break{WorkspaceID: row.WorkspaceID, Seq: row.Seq, ID: row.ID,
				Why: "its evidence is not that of an import"})
			continue
		}
		rows, err := tx.Query(ctx, importNumbers, pgx.NamedArgs{"id": evidence.ImportID})
		if err != nil {
			return fmt.Errorf("read list of import %s: %w", evidence.ImportID, err)
		}
		list, number := consentchain.NewListHash(), ""
		if _, err := pgx.ForEachRow(rows, []any{&number}, func() error { list.Add(number); return nil }); err != nil {
			return fmt.Errorf("read list of import %s: %w", evidence.ImportID, err)
		}
		if list.Hex() != evidence.ListSHA256 {
			w.addBreak(consentchain.Break{WorkspaceID: row.WorkspaceID, Seq: row.Seq, ID: row.ID,
				Why: "the numbers of its list were changed"})
		}
	}
	return nil
}
