package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/contacts-compliance/internal/consentchain"
)

// These are the tables with monthly partitions.
const (
	RecordsTable   = "consent_records"
	DecisionsTable = "decisions"
)

// Now returns the database's time. All replicas use it, so that they agree on which months are old.
func (a *Archive) Now(ctx context.Context) (now time.Time, err error) {
	if err := a.pool.QueryRow(ctx, selectNow).Scan(&now); err != nil {
		return now, fmt.Errorf("read database time: %w", err)
	}
	return now, nil
}

const selectNow = `SELECT now()`

const addMonth = `SELECT add_month(@table, @month::date)`

// AddMonths creates the missing partitions of both tables for the months from first to last. Both
// parameters are the first day of a month in UTC. AddMonths returns the number of partitions that
// it created. Concurrent calls are safe.
func (a *Archive) AddMonths(ctx context.Context, first, last time.Time) (added int, err error) {
	for _, table := range []string{RecordsTable, DecisionsTable} {
		for month := first; !month.After(last); month = month.AddDate(0, 1, 0) {
			var made bool
			// Each table has its own transaction, so that no transaction locks both tables.
			if err := a.pool.QueryRow(ctx, addMonth, pgx.NamedArgs{"table": table, "month": month}).Scan(&made); err != nil {
				return added, fmt.Errorf("add month %s to %s: %w", month.Format("2006-01"), table, err)
			}
			if made {
				added++
			}
		}
	}
	return added, nil
}

const (
	oldestMonth = `SELECT oldest_month(@table, @before::date)`
	dropMonth   = `SELECT drop_month(@table, @month::date)`
)

// ErrMonthKept is returned if a month of consent records cannot be dropped, because its rows are
// not valid.
var ErrMonthKept = errors.New("the month is not dropped")

// DropMonths drops every month of the table that ended before a day (UTC). The database refuses to
// drop months that ended less than five years ago.
//
// For consent records, the same transaction stores the last dropped row of each chain as the signed
// start of the chain. If a row that would be dropped is invalid or not older than the day,
// DropMonths keeps the month.
func (a *Archive) DropMonths(ctx context.Context, table string, before time.Time) (dropped int, err error) {
	for {
		var month *time.Time
		if err := a.pool.QueryRow(ctx, oldestMonth, pgx.NamedArgs{"table": table, "before": before}).Scan(
			&month); err != nil {
			return dropped, fmt.Errorf("find months of %s before %s: %w", table, before.Format(time.DateOnly), err)
		}
		if month == nil {
			return dropped, nil
		}
		if end := month.AddDate(0, 1, 0); end.After(before) {
			return dropped, fmt.Errorf("drop month %s of %s: %w: it ends after %s", month.Format("2006-01"), table, ErrMonthKept,
				before.Format(time.DateOnly))
		}
		var existed bool
		err := pg.InTx(ctx, a.pool, func(tx pgx.Tx) error {
			if table == RecordsTable {
				if err := a.advanceStarts(ctx, tx, month.AddDate(0, 1, 0)); err != nil {
					return err
				}
			}
			return tx.QueryRow(ctx, dropMonth, pgx.NamedArgs{"table": table, "month": *month}).Scan(&existed)
		})
		if err != nil {
			return dropped, fmt.Errorf("drop month %s of %s: %w", month.Format("2006-01"), table, err)
		}
		if existed {
			dropped++
		}
	}
}

const rowsBefore = `
SELECT ` + rowColumns + `
FROM consent_records
WHERE recorded_at < @until
ORDER BY workspace_id, seq`

const setStart = `
INSERT INTO consent_starts AS s (workspace_id, seq, mac, key_id, sum)
VALUES (@workspace_id, @seq, @mac, @key_id, @sum)
ON CONFLICT (workspace_id) DO UPDATE
    SET seq = excluded.seq, mac = excluded.mac, key_id = excluded.key_id, sum = excluded.sum, dropped_at = now()
    WHERE s.seq < excluded.seq`

// advanceStarts signs the last row before endTime as the new start of each chain. It verifies the
// rows first. Otherwise a person with access to the database could get any row signed as a start
// and delete the rows before it.
func (a *Archive) advanceStarts(ctx context.Context, tx pgx.Tx, endTime time.Time) error {
	if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout = '5min'`); err != nil {
		return fmt.Errorf("set transaction options: %w", err)
	}
	starts, err := readSignedLinks(ctx, tx, allStarts)
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, rowsBefore, pgx.NamedArgs{"until": endTime})
	if err != nil {
		return fmt.Errorf("read rows of a month: %w", err)
	}
	defer rows.Close()
	batch := &pgx.Batch{}
	var workspace uuid.UUID
	var chain *consentchain.Verifier
	signStart := func() error {
		if chain == nil {
			return nil
		}
		end, broken := chain.VerifiedTo()
		if broken != nil {
			return fmt.Errorf("%w: %s", ErrMonthKept, broken)
		}
		link := a.keys.SignStart(workspace, end)
		batch.Queue(setStart, pg.Args{"workspace_id": workspace, "seq": link.Seq, "mac": link.MAC, "key_id": link.KeyID,
			"sum": link.Sum})
		return nil
	}
	for rows.Next() {
		row, err := pgx.RowToStructByName[consentchain.Row](rows)
		if err != nil {
			return fmt.Errorf("read row of a month: %w", err)
		}
		if chain == nil || row.WorkspaceID != workspace {
			if err := signStart(); err != nil {
				return err
			}
			workspace, chain = row.WorkspaceID, consentchain.NewVerifier(row.WorkspaceID, a.keys, starts[row.WorkspaceID],
				consentchain.Link{})
		}
		if !row.RecordedAt.Before(endTime) {
			return fmt.Errorf("%w: the database returned a newer row", ErrMonthKept)
		}
		chain.Add(row)
	}
	if err := errors.Join(rows.Err(), signStart()); err != nil {
		return err
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("store starts of chains: %w", err)
	}
	return nil
}
