package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
)

// Import is an import of a list of numbers to opt out, and its progress.
type Import struct {
	ID          uuid.UUID       `db:"id"`
	WorkspaceID uuid.UUID       `db:"workspace_id"`
	Status      string          `db:"status"`
	Actor       string          `db:"actor"`
	Reason      *string         `db:"reason"`
	Bytes       int64           `db:"bytes"`
	Lines       int64           `db:"lines"`
	Bad         int64           `db:"bad"`
	BadRows     json.RawMessage `db:"bad_rows"`
	Numbers     int64           `db:"numbers"`
	Applied     int64           `db:"applied"`
	AppliedTo   string          `db:"applied_to"`
	SinceSeq    *int64          `db:"since_seq"`
	FileSHA256  *string         `db:"file_sha256"`
	ListSHA256  *string         `db:"list_sha256"`
	SameAs      *uuid.UUID      `db:"same_as"`
	RecordID    *uuid.UUID      `db:"record_id"`
	UpdatedAt   time.Time       `db:"updated_at"`
	DoneAt      *time.Time      `db:"done_at"`
	// Claim identifies the process that works on the import. It is uuid.Nil if no process works on
	// it.
	Claim uuid.UUID `db:"claim"`
}

// These are the states of an import.
const (
	Receiving = "receiving"
	Reading   = "reading"
	Applying  = "applying"
	Done      = "done"
)

const importColumns = `id, workspace_id, status, actor, reason, bytes, lines, bad, bad_rows, numbers, applied,
	applied_to, since_seq,
    file_sha256, list_sha256, same_as, record_id, updated_at, done_at, claim`

const insertImport = `
INSERT INTO opt_out_imports (id, workspace_id, actor, reason)
VALUES (@id, @workspace_id, @actor, @reason)
RETURNING ` + importColumns

// OpenImport creates an import without parts.
func (s *Store) OpenImport(ctx context.Context, workspace uuid.UUID, actor string, reason *string) (Import, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Import{}, fmt.Errorf("make import id: %w", err)
	}
	opened, err := pg.One[Import](ctx, s.pool, insertImport,
		pgx.NamedArgs{"id": id, "workspace_id": workspace, "actor": actor, "reason": reason})
	if err != nil {
		return opened, fmt.Errorf("open import: %w", err)
	}
	return opened, nil
}

const importByID = `
SELECT ` + importColumns + `
FROM opt_out_imports
WHERE workspace_id = @workspace_id AND id = @id`

// Import returns one import, or pg.ErrNotFound.
func (s *Store) Import(ctx context.Context, workspace, id uuid.UUID) (Import, error) {
	return readImport(ctx, s.pool, importByID, workspace, id)
}

func readImport(ctx context.Context, q querier, sql string, workspace, id uuid.UUID) (Import, error) {
	found, err := pg.One[Import](ctx, q, sql, pgx.NamedArgs{"workspace_id": workspace, "id": id})
	if err != nil {
		return found, fmt.Errorf("read import %s: %w", id, err)
	}
	return found, nil
}

const listImports = `
SELECT ` + importColumns + `
FROM opt_out_imports
WHERE workspace_id = @workspace_id AND (@after::uuid IS NULL OR id < @after)
ORDER BY id DESC
LIMIT @rows`

const importCursor = `
SELECT EXISTS (SELECT 1 FROM opt_out_imports WHERE workspace_id = @workspace_id AND id = @after)`

// Imports returns one page of imports, newest first.
func (s *Store) Imports(ctx context.Context, workspace uuid.UUID, p page.Request) ([]Import, error) {
	args := pgx.NamedArgs{"workspace_id": workspace, "after": orNull(p.After), "rows": p.Rows()}
	if err := s.checkCursor(ctx, importCursor, p, args); err != nil {
		return nil, err
	}
	found, err := pg.Many[Import](ctx, s.pool, listImports, args)
	if err != nil {
		return nil, fmt.Errorf("list imports: %w", err)
	}
	return found, nil
}

// ErrImportStarted is returned if an import accepts no more parts.
var ErrImportStarted = errors.New("the import was already started")

const putPart = `
INSERT INTO opt_out_import_parts (import_id, part, content)
VALUES (@id, @part, @content)
ON CONFLICT (import_id, part) DO UPDATE SET content = excluded.content`

const countParts = `
UPDATE opt_out_imports
SET bytes = (SELECT coalesce(sum(length(content)), 0) FROM opt_out_import_parts WHERE import_id = @id),
    updated_at = now()
WHERE workspace_id = @workspace_id AND id = @id
RETURNING ` + importColumns

// PutPart stores one part of the file. A part with the same number is replaced.
func (s *Store) PutPart(ctx context.Context, workspace, id uuid.UUID, part int, content []byte) (put Import,
	err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		known, err := readImport(ctx, tx, importByID+` FOR UPDATE`, workspace, id)
		if err != nil {
			return err
		}
		if known.Status != Receiving {
			return ErrImportStarted
		}
		if _, err := tx.Exec(ctx, putPart, pg.Args{"id": id, "part": part, "content": content}); err != nil {
			return fmt.Errorf("store part %d of import %s: %w", part, id, err)
		}
		put, err = pg.One[Import](ctx, tx, countParts, pgx.NamedArgs{"workspace_id": workspace, "id": id})
		return err
	})
	return put, err
}

const missingPart = `
SELECT coalesce(min(wanted), 0) FROM generate_series(1, greatest(1, (SELECT max(part) FROM opt_out_import_parts
    WHERE import_id = @id))) AS wanted
WHERE NOT EXISTS (SELECT 1 FROM opt_out_import_parts WHERE import_id = @id AND part = wanted)`

const startImport = `
UPDATE opt_out_imports SET status = 'reading', updated_at = now()
WHERE workspace_id = @workspace_id AND id = @id
RETURNING ` + importColumns

// StartImport makes an import ready for the importer. If a part is missing, it returns the number
// of the first missing part and starts nothing. An import that was started before stays unchanged.
func (s *Store) StartImport(ctx context.Context, workspace, id uuid.UUID) (started Import, missing int, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if started, err = readImport(ctx, tx, importByID+` FOR UPDATE`, workspace, id); err != nil ||
			started.Status != Receiving {
			return err
		}
		if err := tx.QueryRow(ctx, missingPart, pg.Args{"id": id}).Scan(&missing); err != nil || missing > 0 {
			return err
		}
		started, err = pg.One[Import](ctx, tx, startImport, pgx.NamedArgs{"workspace_id": workspace, "id": id})
		return err
	})
	return started, missing, err
}

// importClaim is the lifetime of a claim. A batch takes a much shorter time.
const importClaim = 30 * time.Second

const claimImport = `
UPDATE opt_out_imports SET claim = @claim, claimed_until = now() + @till::interval
WHERE id = (
    SELECT id FROM opt_out_imports
    WHERE status IN ('reading', 'applying') AND (claimed_until IS NULL OR claimed_until < now())
    ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
)
RETURNING ` + importColumns

// ClaimImport claims the oldest import that has no claim or an expired claim. ok is false if there
// is none.
func (s *Store) ClaimImport(ctx context.Context) (claimed Import, ok bool, err error) {
	claimed, err = pg.One[Import](ctx, s.pool, claimImport, pgx.NamedArgs{"claim": uuid.New(), "till": importClaim})
	if errors.Is(err, pg.ErrNotFound) {
		return claimed, false, nil
	}
	if err != nil {
		return claimed, false, fmt.Errorf("claim import: %w", err)
	}
	return claimed, true, nil
}

const selectPart = `
SELECT content FROM opt_out_import_parts WHERE import_id = @id AND part = @part`

// Part returns one part of the file. ok is false after the last part.
func (s *Store) Part(ctx context.Context, id uuid.UUID, part int) (content []byte, ok bool, err error) {
	content, err = pg.Value[[]byte](ctx, s.pool, selectPart, pg.Args{"id": id, "part": part})
	if errors.Is(err, pg.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read part %d of import %s: %w", part, id, err)
	}
	return content, true, nil
}

const addNumbers = `
INSERT INTO opt_out_import_numbers (import_id, phone_e164)
SELECT @id, number FROM unnest(@numbers::text[]) AS number
ON CONFLICT DO NOTHING`

// ErrClaimLost is returned if another process has claimed the import.
var ErrClaimLost = errors.New("another process has claimed the import")

const updateImport = `
UPDATE opt_out_imports
SET status = @status, lines = @lines, bad = @bad, bad_rows = @bad_rows, numbers = @numbers, applied = @applied,
    applied_to = @applied_to,
    since_seq = @since_seq, file_sha256 = @file_sha256, list_sha256 = @list_sha256, same_as = @same_as,
        record_id = @record_id,
    done_at = CASE WHEN @status = 'done' THEN now() END, updated_at = now(), claimed_until = now() + @till::interval
WHERE workspace_id = @workspace_id AND id = @id AND claim = @claim`

func saveImport(ctx context.Context, tx pgx.Tx, i *Import) error {
	kept, err := tx.Exec(ctx, updateImport, pg.Args{
		"workspace_id": i.WorkspaceID, "id": i.ID, "claim": i.Claim, "status": i.Status, "lines": i.Lines, "bad": i.Bad,
		"bad_rows": []byte(i.BadRows),
		"numbers":  i.Numbers, "applied": i.Applied, "applied_to": i.AppliedTo, "since_seq": i.SinceSeq,
		"file_sha256": i.FileSHA256,
		"list_sha256": i.ListSHA256, "same_as": i.SameAs, "record_id": i.RecordID, "till": importClaim,
	})
	if err != nil {
		return fmt.Errorf("update import %s: %w", i.ID, err)
	}
	if kept.RowsAffected() == 0 {
		return ErrClaimLost
	}
	return nil
}

// asyncCommit makes a commit return before the data is on disk. After a crash of the database, the
// last batches can be missing, and the import repeats them. The commit of the import's consent
// record is synchronous and makes all earlier batches durable.
const asyncCommit = `SET LOCAL synchronous_commit = off`

const renewClaim = `
UPDATE opt_out_imports SET updated_at = now(), claimed_until = now() + @till::interval
WHERE workspace_id = @workspace_id AND id = @id AND claim = @claim`

func (i *Import) claimArgs() pg.Args {
	return pg.Args{"workspace_id": i.WorkspaceID, "id": i.ID, "claim": i.Claim, "till": importClaim}
}

// RenewClaim extends the claim. It returns ErrClaimLost if the claim is lost.
func (s *Store) RenewClaim(ctx context.Context, i *Import) error {
	tended, err := s.pool.Exec(ctx, renewClaim, i.claimArgs())
	if err != nil {
		return fmt.Errorf("renew claim of import %s: %w", i.ID, err)
	}
	if tended.RowsAffected() == 0 {
		return ErrClaimLost
	}
	return nil
}

const lockImport = `
SELECT 1 FROM opt_out_imports WHERE workspace_id = @workspace_id AND id = @id AND claim = @claim FOR UPDATE`

// lock locks the row, so that the claim cannot be taken over during a long transaction.
func (i *Import) lock(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, longTimeout); err != nil {
		return fmt.Errorf("set transaction options: %w", err)
	}
	held, err := tx.Exec(ctx, lockImport, i.claimArgs())
	if err != nil {
		return fmt.Errorf("lock import %s: %w", i.ID, err)
	}
	if held.RowsAffected() == 0 {
		return ErrClaimLost
	}
	return nil
}

// AddNumbers stores numbers of the list and the progress. It ignores numbers that are already
// stored.
func (s *Store) AddNumbers(ctx context.Context, i *Import, numbers []string) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, asyncCommit); err != nil {
			return fmt.Errorf("set transaction options: %w", err)
		}
		added, err := tx.Exec(ctx, addNumbers, pg.Args{"id": i.ID, "numbers": numbers})
		if err != nil {
			return fmt.Errorf("store numbers of import %s: %w", i.ID, err)
		}
		next := *i
		next.Numbers += added.RowsAffected()
		if err := saveImport(ctx, tx, &next); err != nil {
			return err
		}
		*i = next
		return nil
	})
}

const numbersAfter = `
SELECT phone_e164 FROM opt_out_import_numbers WHERE import_id = @id
    AND phone_e164 > @after ORDER BY phone_e164 LIMIT @rows`

// NumbersAfter returns the first numbers of the list that are greater than afterNumber, in
// ascending order. The parameter rows is the maximum number of results.
func (s *Store) NumbersAfter(ctx context.Context, id uuid.UUID, afterNumber string, rows int) ([]string, error) {
	found, err := pg.Values[string](ctx, s.pool, numbersAfter, pg.Args{"id": id, "after": afterNumber, "rows": rows})
	if err != nil {
		return nil, fmt.Errorf("read numbers of import %s: %w", id, err)
	}
	return found, nil
}

const earlierImport = `
SELECT id FROM opt_out_imports
WHERE workspace_id = @workspace_id AND file_sha256 = @file_sha256 AND record_id IS NOT NULL
ORDER BY id DESC LIMIT 1`

const allOptedOut = `
SELECT NOT EXISTS (
    SELECT 1 FROM opt_out_import_numbers n LEFT JOIN contacts c ON c.workspace_id = @workspace_id
        AND c.phone_e164 = n.phone_e164
    WHERE n.import_id = @id AND c.dnd_status IS DISTINCT FROM 'dnd')`

const deleteNumbers = `
DELETE FROM opt_out_import_numbers WHERE import_id = @id`

const deleteParts = `
DELETE FROM opt_out_import_parts WHERE import_id = @id`

const headSeq = `
SELECT coalesce((SELECT seq FROM consent_heads WHERE workspace_id = @workspace_id), 0)`

// FinishReading stores the digests and ends the phase in which the file is read. Next, the import
// opts out its numbers. If an earlier import had the same file, and all numbers of that file are
// still opted out, FinishReading ends the import.
func (s *Store) FinishReading(ctx context.Context, i *Import) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		next, args := *i, pg.Args{"workspace_id": i.WorkspaceID, "id": i.ID, "file_sha256": i.FileSHA256}
		if err := i.lock(ctx, tx); err != nil {
			return err
		}
		earlier, err := pg.Value[uuid.UUID](ctx, tx, earlierImport, args)
		if err != nil && !errors.Is(err, pg.ErrNotFound) {
			return fmt.Errorf("find earlier import of the file of %s: %w", i.ID, err)
		}
		var same bool
		if err == nil {
			if err := tx.QueryRow(ctx, allOptedOut, args).Scan(&same); err != nil {
				return fmt.Errorf("check numbers of import %s: %w", i.ID, err)
			}
		}
		if same {
			next.Status, next.SameAs = Done, &earlier
			if _, err := tx.Exec(ctx, deleteNumbers, args); err != nil {
				return fmt.Errorf("delete numbers of import %s: %w", i.ID, err)
			}
			if _, err := tx.Exec(ctx, deleteParts, args); err != nil {
				return fmt.Errorf("delete parts of import %s: %w", i.ID, err)
			}
		} else {
			var seq int64
			if err := tx.QueryRow(ctx, headSeq, args).Scan(&seq); err != nil {
				return fmt.Errorf("read head: %w", err)
			}
			next.Status, next.SinceSeq = Applying, &seq
		}
		if err := saveImport(ctx, tx, &next); err != nil {
			return err
		}
		*i = next
		return nil
	})
}

const longTimeout = `SET LOCAL statement_timeout = '5min'`

const deleteIdleImports = `
WITH gone AS (
    DELETE FROM opt_out_imports WHERE status = 'receiving'
        AND updated_at < now() - make_interval(secs => @seconds) RETURNING id
), pieces AS (DELETE FROM opt_out_import_parts WHERE import_id IN (SELECT id FROM gone))
SELECT count(*) FROM gone`

// DeleteIdleImports deletes imports that were never started and received no part for idleTime. It
// returns the number of deleted imports.
func (s *Store) DeleteIdleImports(ctx context.Context, idleTime time.Duration) (gone int64, err error) {
	if err := s.pool.QueryRow(ctx, deleteIdleImports, pg.Args{"seconds": idleTime.Seconds()}).Scan(&gone); err != nil {
		return 0, fmt.Errorf("delete idle imports: %w", err)
	}
	return gone, nil
}
