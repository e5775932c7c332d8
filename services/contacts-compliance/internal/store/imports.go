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

// Import is one list of people who must not be called, and how far it is.
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
	// Claim is whose work it is; uuid.Nil: nobody's.
	Claim uuid.UUID `db:"claim"`
}

// The stations of an import.
const (
	Receiving = "receiving"
	Reading   = "reading"
	Applying  = "applying"
	Done      = "done"
)

const importColumns = `id, workspace_id, status, actor, reason, bytes, lines, bad, bad_rows, numbers, applied, applied_to, since_seq,
    file_sha256, list_sha256, same_as, record_id, updated_at, done_at, claim`

const insertImport = `
INSERT INTO opt_out_imports (id, workspace_id, actor, reason)
VALUES (@id, @workspace_id, @actor, @reason)
RETURNING ` + importColumns

// OpenImport begins an import, which then waits for its parts.
func (s *Store) OpenImport(ctx context.Context, workspace uuid.UUID, actor string, reason *string) (Import, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Import{}, fmt.Errorf("make import id: %w", err)
	}
	opened, err := pg.One[Import](ctx, s.pool, insertImport, pgx.NamedArgs{"id": id, "workspace_id": workspace, "actor": actor, "reason": reason})
	if err != nil {
		return opened, fmt.Errorf("open import: %w", err)
	}
	return opened, nil
}

const importByID = `
SELECT ` + importColumns + `
FROM opt_out_imports
WHERE workspace_id = @workspace_id AND id = @id`

// Import reads one import, or pg.ErrNotFound.
func (s *Store) Import(ctx context.Context, workspace, id uuid.UUID) (Import, error) {
	return importIn(ctx, s.pool, importByID, workspace, id)
}

func importIn(ctx context.Context, q querier, sql string, workspace, id uuid.UUID) (Import, error) {
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

// Imports reads one page of imports, newest first.
func (s *Store) Imports(ctx context.Context, workspace uuid.UUID, p page.Request) ([]Import, error) {
	args := pgx.NamedArgs{"workspace_id": workspace, "after": orNull(p.After), "rows": p.Rows()}
	if err := s.knowCursor(ctx, importCursor, p, args); err != nil {
		return nil, err
	}
	found, err := pg.Many[Import](ctx, s.pool, listImports, args)
	if err != nil {
		return nil, fmt.Errorf("list imports: %w", err)
	}
	return found, nil
}

// ErrStarted says that an import takes no more parts.
var ErrStarted = errors.New("the import was started")

const putPart = `
INSERT INTO opt_out_import_parts (import_id, part, content)
VALUES (@id, @part, @content)
ON CONFLICT (import_id, part) DO UPDATE SET content = excluded.content`

const countParts = `
UPDATE opt_out_imports
SET bytes = (SELECT coalesce(sum(length(content)), 0) FROM opt_out_import_parts WHERE import_id = @id), updated_at = now()
WHERE workspace_id = @workspace_id AND id = @id
RETURNING ` + importColumns

// PutPart keeps one piece of the file; the same number again replaces it.
func (s *Store) PutPart(ctx context.Context, workspace, id uuid.UUID, part int, content []byte) (put Import, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		known, err := importIn(ctx, tx, importByID+` FOR UPDATE`, workspace, id)
		if err != nil {
			return err
		}
		if known.Status != Receiving {
			return ErrStarted
		}
		if _, err := tx.Exec(ctx, putPart, pg.Args{"id": id, "part": part, "content": content}); err != nil {
			return fmt.Errorf("keep part %d of import %s: %w", part, id, err)
		}
		put, err = pg.One[Import](ctx, tx, countParts, pgx.NamedArgs{"workspace_id": workspace, "id": id})
		return err
	})
	return put, err
}

const missingPart = `
SELECT coalesce(min(wanted), 0) FROM generate_series(1, greatest(1, (SELECT max(part) FROM opt_out_import_parts WHERE import_id = @id))) AS wanted
WHERE NOT EXISTS (SELECT 1 FROM opt_out_import_parts WHERE import_id = @id AND part = wanted)`

const startImport = `
UPDATE opt_out_imports SET status = 'reading', updated_at = now()
WHERE workspace_id = @workspace_id AND id = @id
RETURNING ` + importColumns

// StartImport hands an import to whoever works next. missing is the first part that is not there, and then nothing is started. One that was
// started before stays as it is.
func (s *Store) StartImport(ctx context.Context, workspace, id uuid.UUID) (started Import, missing int, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if started, err = importIn(ctx, tx, importByID+` FOR UPDATE`, workspace, id); err != nil || started.Status != Receiving {
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

// importClaim outlasts a batch many times.
const importClaim = 30 * time.Second

const claimImport = `
UPDATE opt_out_imports SET claim = @claim, claimed_until = now() + @till::interval
WHERE id = (
    SELECT id FROM opt_out_imports
    WHERE status IN ('reading', 'applying') AND (claimed_until IS NULL OR claimed_until < now())
    ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
)
RETURNING ` + importColumns

// ClaimImport takes the oldest import that nobody works on; ok is false when there is none. What was begun by a process that died goes on.
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

const partOf = `
SELECT content FROM opt_out_import_parts WHERE import_id = @id AND part = @part`

// Part is one piece of the file; ok is false behind the last.
func (s *Store) Part(ctx context.Context, id uuid.UUID, part int) (content []byte, ok bool, err error) {
	content, err = pg.Value[[]byte](ctx, s.pool, partOf, pg.Args{"id": id, "part": part})
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

// ErrLost says that another process works on the import now.
var ErrLost = errors.New("the import is another's work")

const keepImport = `
UPDATE opt_out_imports
SET status = @status, lines = @lines, bad = @bad, bad_rows = @bad_rows, numbers = @numbers, applied = @applied, applied_to = @applied_to,
    since_seq = @since_seq, file_sha256 = @file_sha256, list_sha256 = @list_sha256, same_as = @same_as, record_id = @record_id,
    done_at = CASE WHEN @status = 'done' THEN now() END, updated_at = now(), claimed_until = now() + @till::interval
WHERE workspace_id = @workspace_id AND id = @id AND claim = @claim`

func keep(ctx context.Context, tx pgx.Tx, i *Import) error {
	kept, err := tx.Exec(ctx, keepImport, pg.Args{
		"workspace_id": i.WorkspaceID, "id": i.ID, "claim": i.Claim, "status": i.Status, "lines": i.Lines, "bad": i.Bad, "bad_rows": []byte(i.BadRows),
		"numbers": i.Numbers, "applied": i.Applied, "applied_to": i.AppliedTo, "since_seq": i.SinceSeq, "file_sha256": i.FileSHA256,
		"list_sha256": i.ListSHA256, "same_as": i.SameAs, "record_id": i.RecordID, "till": importClaim,
	})
	if err != nil {
		return fmt.Errorf("keep import %s: %w", i.ID, err)
	}
	if kept.RowsAffected() == 0 {
		return ErrLost
	}
	return nil
}

// unhurried is for what goes on from its last batch after a crash: a commit does not wait for the disk, and the record at the end does so for all.
const unhurried = `SET LOCAL synchronous_commit = off`

const tendImport = `
UPDATE opt_out_imports SET updated_at = now(), claimed_until = now() + @till::interval
WHERE workspace_id = @workspace_id AND id = @id AND claim = @claim`

func (i *Import) claimed() pg.Args {
	return pg.Args{"workspace_id": i.WorkspaceID, "id": i.ID, "claim": i.Claim, "till": importClaim}
}

// Tend keeps the import ours while nothing of it is written; ErrLost when it is not.
func (s *Store) Tend(ctx context.Context, i *Import) error {
	tended, err := s.pool.Exec(ctx, tendImport, i.claimed())
	if err != nil {
		return fmt.Errorf("tend import %s: %w", i.ID, err)
	}
	if tended.RowsAffected() == 0 {
		return ErrLost
	}
	return nil
}

const lockImport = `
SELECT 1 FROM opt_out_imports WHERE workspace_id = @workspace_id AND id = @id AND claim = @claim FOR UPDATE`

// hold keeps the import ours to the end of a transaction that takes its time.
func (i *Import) hold(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, longer); err != nil {
		return fmt.Errorf("take time: %w", err)
	}
	held, err := tx.Exec(ctx, lockImport, i.claimed())
	if err != nil {
		return fmt.Errorf("hold import %s: %w", i.ID, err)
	}
	if held.RowsAffected() == 0 {
		return ErrLost
	}
	return nil
}

// AddNumbers keeps what was read of the list, each number once, together with how far the import is.
func (s *Store) AddNumbers(ctx context.Context, i *Import, numbers []string) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, unhurried); err != nil {
			return fmt.Errorf("take time: %w", err)
		}
		added, err := tx.Exec(ctx, addNumbers, pg.Args{"id": i.ID, "numbers": numbers})
		if err != nil {
			return fmt.Errorf("keep numbers of import %s: %w", i.ID, err)
		}
		next := *i
		next.Numbers += added.RowsAffected()
		if err := keep(ctx, tx, &next); err != nil {
			return err
		}
		*i = next
		return nil
	})
}

const numbersAfter = `
SELECT phone_e164 FROM opt_out_import_numbers WHERE import_id = @id AND phone_e164 > @after ORDER BY phone_e164 LIMIT @rows`

// NumbersAfter reads the list in its order.
func (s *Store) NumbersAfter(ctx context.Context, id uuid.UUID, after string, rows int) ([]string, error) {
	found, err := pg.Values[string](ctx, s.pool, numbersAfter, pg.Args{"id": id, "after": after, "rows": rows})
	if err != nil {
		return nil, fmt.Errorf("read numbers of import %s: %w", id, err)
	}
	return found, nil
}

const earlierImport = `
SELECT id FROM opt_out_imports
WHERE workspace_id = @workspace_id AND file_sha256 = @file_sha256 AND record_id IS NOT NULL
ORDER BY id DESC LIMIT 1`

const stillHolds = `
SELECT NOT EXISTS (
    SELECT 1 FROM opt_out_import_numbers n LEFT JOIN contacts c ON c.workspace_id = @workspace_id AND c.phone_e164 = n.phone_e164
    WHERE n.import_id = @id AND c.dnd_status IS DISTINCT FROM 'dnd')`

const forgetNumbers = `
DELETE FROM opt_out_import_numbers WHERE import_id = @id`

const forgetParts = `
DELETE FROM opt_out_import_parts WHERE import_id = @id`

const headSeq = `
SELECT coalesce((SELECT seq FROM consent_heads WHERE workspace_id = @workspace_id), 0)`

// SettleList ends the reading: i knows its digests. The same file as that of an earlier import, all of whose numbers are still opted out, ends
// here and changes nothing; otherwise the numbers are to be opted out.
func (s *Store) SettleList(ctx context.Context, i *Import) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		next, args := *i, pg.Args{"workspace_id": i.WorkspaceID, "id": i.ID, "file_sha256": i.FileSHA256}
		if err := i.hold(ctx, tx); err != nil {
			return err
		}
		earlier, err := pg.Value[uuid.UUID](ctx, tx, earlierImport, args)
		if err != nil && !errors.Is(err, pg.ErrNotFound) {
			return fmt.Errorf("look for the file of import %s: %w", i.ID, err)
		}
		var same bool
		if err == nil {
			if err := tx.QueryRow(ctx, stillHolds, args).Scan(&same); err != nil {
				return fmt.Errorf("compare import %s: %w", i.ID, err)
			}
		}
		if same {
			next.Status, next.SameAs = Done, &earlier
			if _, err := tx.Exec(ctx, forgetNumbers, args); err != nil {
				return fmt.Errorf("forget numbers of import %s: %w", i.ID, err)
			}
			if _, err := tx.Exec(ctx, forgetParts, args); err != nil {
				return fmt.Errorf("forget parts of import %s: %w", i.ID, err)
			}
		} else {
			var seq int64
			if err := tx.QueryRow(ctx, headSeq, args).Scan(&seq); err != nil {
				return fmt.Errorf("read head: %w", err)
			}
			next.Status, next.SinceSeq = Applying, &seq
		}
		if err := keep(ctx, tx, &next); err != nil {
			return err
		}
		*i = next
		return nil
	})
}

const longer = `SET LOCAL statement_timeout = '5min'`

const pruneImports = `
WITH gone AS (
    DELETE FROM opt_out_imports WHERE status = 'receiving' AND updated_at < now() - make_interval(secs => @seconds) RETURNING id
), pieces AS (DELETE FROM opt_out_import_parts WHERE import_id IN (SELECT id FROM gone))
SELECT count(*) FROM gone`

// PruneImports forgets imports that got no part for so long and were never started, and says how many.
func (s *Store) PruneImports(ctx context.Context, idle time.Duration) (gone int64, err error) {
	if err := s.pool.QueryRow(ctx, pruneImports, pg.Args{"seconds": idle.Seconds()}).Scan(&gone); err != nil {
		return 0, fmt.Errorf("prune imports: %w", err)
	}
	return gone, nil
}
