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

// The tables that lie in months (UTC).
const (
	Records   = "consent_records"
	Decisions = "decisions"
)

// Clock is the database's time: replicas whose own clocks differ must not differ about what is old.
func (a *Archive) Clock(ctx context.Context) (now time.Time, err error) {
	if err := a.pool.QueryRow(ctx, clock).Scan(&now); err != nil {
		return now, fmt.Errorf("ask the database for the time: %w", err)
	}
	return now, nil
}

const clock = `SELECT now()`

const addMonth = `SELECT add_month(@table, @month::date)`

// AddMonths makes the partitions of both tables for the months from the first to the last (their first days, UTC) that have none. Again,
// or by several at once, it changes nothing more; added counts the partitions of this call.
func (a *Archive) AddMonths(ctx context.Context, first, last time.Time) (added int, err error) {
	for _, table := range []string{Records, Decisions} {
		for month := first; !month.After(last); month = month.AddDate(0, 1, 0) {
			var made bool
			// Each in a transaction of its own: none holds the locks of two tables.
			if err := a.pool.QueryRow(ctx, addMonth, pgx.NamedArgs{"table": table, "month": month}).Scan(&made); err != nil {
				return added, fmt.Errorf("add %s to %s: %w", month.Format("2006-01"), table, err)
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

// ErrKept says that a month of consent records is not dropped, for the start that would be signed is not the end of a chain.
var ErrKept = errors.New("the month is kept")

// DropMonths drops every month of the table that ended before the given day (UTC). Of consent records, the last row of each chain in it
// stays behind as the chain's start, in the same transaction. The database refuses to drop what is younger than five years. Nothing that the
// database says is believed: a start is signed only where every row up to it is as it was written, and was written before that day.
func (a *Archive) DropMonths(ctx context.Context, table string, before time.Time) (dropped int, err error) {
	for {
		var month *time.Time
		if err := a.pool.QueryRow(ctx, oldestMonth, pgx.NamedArgs{"table": table, "before": before}).Scan(&month); err != nil {
			return dropped, fmt.Errorf("look for months of %s before %s: %w", table, before.Format(time.DateOnly), err)
		}
		if month == nil {
			return dropped, nil
		}
		if end := month.AddDate(0, 1, 0); end.After(before) {
			return dropped, fmt.Errorf("drop %s of %s: %w: it ends behind %s", month.Format("2006-01"), table, ErrKept, before.Format(time.DateOnly))
		}
		var gone bool
		err := pg.InTx(ctx, a.pool, func(tx pgx.Tx) error {
			if table == Records {
				if err := a.moveStarts(ctx, tx, month.AddDate(0, 1, 0)); err != nil {
					return err
				}
			}
			return tx.QueryRow(ctx, dropMonth, pgx.NamedArgs{"table": table, "month": *month}).Scan(&gone)
		})
		if err != nil {
			return dropped, fmt.Errorf("drop %s of %s: %w", month.Format("2006-01"), table, err)
		}
		if gone {
			dropped++
		}
	}
}

const rowsBefore = `
SELECT ` + archiveColumns + `
FROM consent_records
WHERE recorded_at < @until
ORDER BY workspace_id, seq`

const setStart = `
INSERT INTO consent_starts AS s (workspace_id, seq, mac, key_id, sum)
VALUES (@workspace_id, @seq, @mac, @key_id, @sum)
ON CONFLICT (workspace_id) DO UPDATE
    SET seq = excluded.seq, mac = excluded.mac, key_id = excluded.key_id, sum = excluded.sum, dropped_at = now()
    WHERE s.seq < excluded.seq`

// moveStarts signs the last row before the instant of each chain as its new start. Whoever rules the database could else have any row signed as a
// start, by a month of their own making, and take away what lies before it.
func (a *Archive) moveStarts(ctx context.Context, tx pgx.Tx, until time.Time) error {
	if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout = '5min'`); err != nil {
		return fmt.Errorf("take time: %w", err)
	}
	starts, err := marks(ctx, tx, everyStart)
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, rowsBefore, pgx.NamedArgs{"until": until})
	if err != nil {
		return fmt.Errorf("read the rows of a month: %w", err)
	}
	defer rows.Close()
	batch := &pgx.Batch{}
	var workspace uuid.UUID
	var chain *consentchain.Chain
	move := func() error {
		if chain == nil {
			return nil
		}
		end, broken := chain.Reached()
		if broken != nil {
			return fmt.Errorf("%w: %s", ErrKept, broken)
		}
		mark := a.keys.Start(workspace, end)
		batch.Queue(setStart, pg.Args{"workspace_id": workspace, "seq": mark.Seq, "mac": mark.MAC, "key_id": mark.KeyID, "sum": mark.Sum})
		return nil
	}
	for rows.Next() {
		row, err := pgx.RowToStructByName[consentchain.Row](rows)
		if err != nil {
			return fmt.Errorf("read a row of a month: %w", err)
		}
		if chain == nil || row.WorkspaceID != workspace {
			if err := move(); err != nil {
				return err
			}
			workspace, chain = row.WorkspaceID, consentchain.NewChain(row.WorkspaceID, a.keys, starts[row.WorkspaceID], consentchain.Link{})
		}
		if !row.RecordedAt.Before(until) {
			return fmt.Errorf("%w: the database answered with a younger row", ErrKept)
		}
		chain.Next(row)
	}
	if err := errors.Join(rows.Err(), move()); err != nil {
		return err
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("move the starts of chains: %w", err)
	}
	return nil
}
