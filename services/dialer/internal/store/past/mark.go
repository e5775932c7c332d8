package past

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
)

// Mark is what the database says of itself.
type Mark struct {
	// Until: whatever was committed before this instant of the database's clock, in its own history or in the one that it was set back from, is known here. Nil: nobody has said so yet.
	Until *time.Time
	// On is the timeline of the server that this was said on, empty where the database was found to be older than what was told; Now is the one that it writes. A failover
	// or a restore begins another.
	On, Now string
}

// Stands says that the database has not become another since, as far as its server's timeline tells, nor was found to be older. A snapshot of its disk has the same timeline.
func (m Mark) Stands() bool { return m.Until == nil || m.On == m.Now }

// The timeline stands in the name of the file that is written.
const timeline = `substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)`

// A mark that lies ahead was made by a clock that has been set back since: nobody knows when that was.
const mark = `
SELECT coalesce(t.timeline, '') AS "on", ` + timeline + ` AS now, CASE WHEN t.until > now() + interval '1 minute' THEN to_timestamp(0) ELSE t.until END AS until
FROM (VALUES (true)) AS always (one) LEFT JOIN told_until t USING (one)`

// Mark reads it.
func (s *Store) Mark(ctx context.Context) (m Mark, err error) {
	rows, err := s.pool.Query(ctx, mark)
	if err != nil {
		return m, fmt.Errorf("look at what is known: %w", err)
	}
	if m, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Mark]); err != nil {
		return m, fmt.Errorf("look at what is known: %w", err)
	}
	return m, nil
}

const moveMark = `UPDATE told_until SET until = now() WHERE timeline = ` + timeline + ``

// MoveMark moves a mark that stands on to now. For whoever may dial.
func (s *Store) MoveMark(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, moveMark); err != nil {
		return fmt.Errorf("move the mark of what is known: %w", err)
	}
	return nil
}

const doubt = `UPDATE told_until SET timeline = ''`

// Doubt takes the mark's timeline away: no dialer dials until Vouch. How far back it lies is kept.
func (s *Store) Doubt(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, doubt); err != nil {
		return fmt.Errorf("doubt what is known: %w", err)
	}
	return nil
}

const vouch = `
INSERT INTO told_until (timeline, until) SELECT @on, now() WHERE ` + timeline + ` = @on
ON CONFLICT (one) DO UPDATE SET timeline = excluded.timeline, until = excluded.until`

var errAnother = errors.New("the database has become another meanwhile")

// Vouch says that everything that has been told is known here, as was looked at on this timeline; the server must still be on it.
func (s *Store) Vouch(ctx context.Context, on string) error {
	did, err := s.pool.Exec(ctx, vouch, pg.Args{"on": on})
	if err == nil && did.RowsAffected() == 0 {
		err = errAnother
	}
	if err != nil {
		return fmt.Errorf("vouch for what is known: %w", err)
	}
	return nil
}
