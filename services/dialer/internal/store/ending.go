package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/call"
)

const sweepLongest = `
UPDATE calls SET hangup_at = now(), ending = CASE WHEN answered_at IS NULL THEN 'ring_timeout' ELSE 'max_duration' END
WHERE call_id = ANY (ARRAY(
	SELECT call_id FROM calls WHERE ended_at IS NULL AND ending = '' AND end_by <= now()
	ORDER BY end_by LIMIT 500 FOR UPDATE SKIP LOCKED))`

const sweepDeadline = `
UPDATE calls SET hangup_at = now(),
	ending = CASE WHEN ending IN ('recovery', 'dial_unknown') OR status = 'fenced' THEN 'lost' ELSE 'watchdog' END
WHERE call_id = ANY (ARRAY(
	SELECT call_id FROM calls WHERE ended_at IS NULL AND deadline_at <= now() AND ending NOT IN ('watchdog', 'lost')
	ORDER BY deadline_at LIMIT 500 FOR UPDATE SKIP LOCKED))`

// Sweep marks the calls that have reached their longest time, or rang too long, to be hung up, and those whose end nobody told, to be
// ended by the watchdog. It answers how many.
func (s *Store) Sweep(ctx context.Context) (int64, error) {
	longest, err := s.pool.Exec(ctx, sweepLongest)
	if err != nil {
		return 0, fmt.Errorf("sweep longest calls: %w", err)
	}
	overdue, err := s.pool.Exec(ctx, sweepDeadline)
	if err != nil {
		return 0, fmt.Errorf("sweep overdue calls: %w", err)
	}
	return longest.RowsAffected() + overdue.RowsAffected(), nil
}

const dueHangups = `
WITH ours AS (
	UPDATE calls SET hangup_at = now() + interval '2 seconds'
	WHERE call_id = ANY (ARRAY(
		SELECT call_id FROM calls WHERE ended_at IS NULL AND ending <> '' AND hangup_at <= now()
		ORDER BY hangup_at LIMIT 100 FOR UPDATE SKIP LOCKED))
	RETURNING call_id, ending
), orphaned AS (
	UPDATE orphans SET hangup_at = now() + interval '2 seconds'
	WHERE call_id = ANY (ARRAY(
		SELECT call_id FROM orphans WHERE hangup_at <= now() ORDER BY hangup_at LIMIT 100 FOR UPDATE SKIP LOCKED))
	RETURNING call_id
)
SELECT call_id, ending, false AS orphan FROM ours UNION ALL SELECT call_id, '', true FROM orphaned`

// Hangup is a call that is to be hung up, and why.
type Hangup struct {
	CallID uuid.UUID   `db:"call_id"`
	Ending call.Ending `db:"ending"`
	// Orphan says that the call lives at the carrier and not here.
	Orphan bool `db:"orphan"`
}

// DueHangups takes the calls whose carrier is to be asked now; it is asked again in 2 s unless they end, or an orphan is forgotten.
func (s *Store) DueHangups(ctx context.Context) ([]Hangup, error) {
	rows, err := s.pool.Query(ctx, dueHangups)
	if err != nil {
		return nil, fmt.Errorf("claim hang-ups: %w", err)
	}
	due, err := pgx.CollectRows(rows, pgx.RowToStructByName[Hangup])
	if err != nil {
		return nil, fmt.Errorf("claim hang-ups: %w", err)
	}
	return due, nil
}

const forgetOrphan = `DELETE FROM orphans WHERE call_id = @call_id`

// ForgetOrphan says that the carrier has been told.
func (s *Store) ForgetOrphan(ctx context.Context, callID uuid.UUID) error {
	if _, err := s.pool.Exec(ctx, forgetOrphan, pg.Args{"call_id": callID}); err != nil {
		return fmt.Errorf("forget orphan %s: %w", callID, err)
	}
	return nil
}

const dueAnswers = `
UPDATE calls SET owner = @instance, answer_at = now() + interval '3 seconds'
WHERE call_id = ANY (ARRAY(
	SELECT call_id FROM calls WHERE ended_at IS NULL AND ending = '' AND answer_at <= now()
	ORDER BY answer_at LIMIT 50 FOR UPDATE SKIP LOCKED))
RETURNING call_id, workspace_id, from_number, traceparent`

// Arrival is an inbound call that rings us.
type Arrival struct {
	CallID      uuid.UUID `db:"call_id"`
	WorkspaceID uuid.UUID `db:"workspace_id"`
	From        string    `db:"from_number"`
	Traceparent string    `db:"traceparent"`
}

// DueAnswers takes the inbound calls that nobody has answered yet; they become this process's.
func (s *Store) DueAnswers(ctx context.Context) ([]Arrival, error) {
	rows, err := s.pool.Query(ctx, dueAnswers, pg.Args{"instance": s.instance})
	if err != nil {
		return nil, fmt.Errorf("claim arrivals: %w", err)
	}
	due, err := pgx.CollectRows(rows, pgx.RowToStructByName[Arrival])
	if err != nil {
		return nil, fmt.Errorf("claim arrivals: %w", err)
	}
	return due, nil
}

const dueReports = `
UPDATE opt_outs SET report_at = now() + interval '3 seconds'
WHERE call_id = ANY (ARRAY(
	SELECT call_id FROM opt_outs WHERE acknowledged_at IS NULL AND report_at <= now()
	ORDER BY report_at LIMIT 50 FOR UPDATE SKIP LOCKED))
RETURNING call_id, workspace_id, phone_e164, evidence, heard_at`

// DueReports takes the opt-outs that are to be reported now; each comes again every 3 s until it is acknowledged.
func (s *Store) DueReports(ctx context.Context) ([]OptOut, error) {
	rows, err := s.pool.Query(ctx, dueReports)
	if err != nil {
		return nil, fmt.Errorf("claim opt-out reports: %w", err)
	}
	due, err := pgx.CollectRows(rows, pgx.RowToStructByName[OptOut])
	if err != nil {
		return nil, fmt.Errorf("claim opt-out reports: %w", err)
	}
	return due, nil
}

const acknowledge = `UPDATE opt_outs SET acknowledged_at = now(), evidence = '' WHERE call_id = @call_id AND acknowledged_at IS NULL`

// Acknowledged notes that contacts-compliance has the opt-out, its evidence too, which is forgotten here: from here on its gate refuses the number.
func (s *Store) Acknowledged(ctx context.Context, callID uuid.UUID) error {
	if _, err := s.pool.Exec(ctx, acknowledge, pg.Args{"call_id": callID}); err != nil {
		return fmt.Errorf("acknowledge opt-out heard in %s: %w", callID, err)
	}
	return nil
}
