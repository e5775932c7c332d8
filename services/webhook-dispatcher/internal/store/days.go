package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// histories are the tables that lie in days (UTC).
func histories() []string { return []string{"webhook_event", "webhook_delivery", "webhook_attempt"} }

// Clock is the database's time: replicas whose own clocks differ must not differ about what is old.
func (s *Store) Clock(ctx context.Context) (now time.Time, err error) {
	if err := s.pool.QueryRow(ctx, clock).Scan(&now); err != nil {
		return time.Time{}, fmt.Errorf("ask the database for the time: %w", err)
	}
	return now, nil
}

const clock = `SELECT now()`

// AddDays makes the partitions of every day from the first to the last (dates in UTC) that has none. Again, or by several at once, it
// changes nothing more; added counts the partitions of this call.
func (s *Store) AddDays(ctx context.Context, first, last time.Time) (added int, err error) {
	for _, table := range histories() {
		for day := first; !day.After(last); day = day.AddDate(0, 0, 1) {
			var made bool
			// Each in a transaction of its own: none holds the locks of two tables.
			if err := s.pool.QueryRow(ctx, addDay, pgx.NamedArgs{"table": table, "day": day}).Scan(&made); err != nil {
				return added, fmt.Errorf("add %s to %s: %w", day.Format(time.DateOnly), table, err)
			}
			if made {
				added++
			}
		}
	}
	return added, nil
}

const addDay = `SELECT webhook_add_day(@table, @day::date)`

// DropDays drops every partition of a day before the given date (UTC), and what the default partitions hold from before it. What is
// still queued stays, in the default partition, until a call after its end. dropped counts the partitions.
func (s *Store) DropDays(ctx context.Context, before time.Time) (dropped int, err error) {
	for _, table := range histories() {
		args := pgx.NamedArgs{"table": table, "before": before}
		for {
			var day *time.Time
			if err := s.pool.QueryRow(ctx, dropDay, args).Scan(&day); err != nil {
				return dropped, fmt.Errorf("drop days of %s before %s: %w", table, before.Format(time.DateOnly), err)
			}
			if day == nil {
				break
			}
			dropped++
		}
		var renewed bool
		if err := s.pool.QueryRow(ctx, dropRest, args).Scan(&renewed); err != nil {
			return dropped, fmt.Errorf("drop the rest of %s before %s: %w", table, before.Format(time.DateOnly), err)
		}
		if renewed {
			dropped++
		}
	}
	return dropped, nil
}

const (
	dropDay  = `SELECT webhook_drop_day(@table, @before::date)`
	dropRest = `SELECT webhook_drop_rest(@table, @before::date)`
)
