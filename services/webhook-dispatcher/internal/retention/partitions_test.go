package retention_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
)

func daysAround(from, to int) (names []string) {
	for d := from; d <= to; d++ {
		names = append(names, noon().AddDate(0, 0, d).Format("20060102"))
	}
	return names
}

func tables() []string { return []string{"events", "deliveries", "attempts"} }

func TestRotateDays_ConcurrentCallsCreateEachPartitionOnce(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			err := r.job.RotateDays(t.Context(), noon())
			for lockTimeout(err) {
				err = r.job.RotateDays(t.Context(), noon())
			}
			if err != nil {
				t.Errorf("concurrent RotateDays: %v", err)
			}
		})
	}
	all.Wait()
	for _, table := range tables() {
		wantEqual(t, table, r.partitionDays(table), daysAround(-7, 3))
	}
	added, err := r.store.AddDays(t.Context(), noon().AddDate(0, 0, -7).Truncate(day), noon().Truncate(day))
	if err != nil {
		t.Fatalf("AddDays: %v", err)
	}
	if added != 0 {
		t.Errorf("partitions added by a second AddDays = %d, want 0", added)
	}
}

func TestRotateDays_DropsOnlyWholeUTCDays(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.rotate(noon())
	midnight := noon().Truncate(day)
	r.ingest(midnight.Add(-time.Microsecond))
	r.ingest(midnight)
	yesterday, today := midnight.Add(-day).Format("_20060102"), midnight.Format("_20060102")
	wantEqual(t, "places", r.partitionsOfRows("deliveries"), []string{"deliveries" + yesterday, "deliveries" + today})
	wantEqual(t, "places", r.partitionsOfRows("events"), []string{"events" + yesterday, "events" + today})
	r.complete(r.claim(), deliveries.OutcomeDelivered, midnight)
	wantEqual(t, "places of attempts", r.partitionsOfRows("attempts"), []string{"attempts" + today, "attempts" + today})

	end := midnight.Add(keep) // the end of the retention period of events from just before midnight
	r.rotate(end.Add(-time.Nanosecond))
	if n := r.count(`SELECT count(*) FROM deliveries`); n != 2 {
		t.Fatalf("deliveries just before the day is old enough = %d, want 2", n)
	}
	for range 2 {
		r.rotate(end)
		wantEqual(t, "places after the drop", r.partitionsOfRows("deliveries"), []string{"deliveries" + today})
		wantEqual(t, "bodies after the drop", r.partitionsOfRows("events"), []string{"events" + today})
	}
	r.rotate(end.Add(day))
	for _, table := range tables() {
		if left := r.partitionsOfRows(table); len(left) != 0 {
			t.Errorf("%s still holds %v", table, left)
		}
		days := r.partitionDays(table)
		if old := midnight.Format("20060102"); slices.Contains(days, old) {
			t.Errorf("days of %s = %v, want them not to contain %s", table, days, old)
		}
		if next := end.Add(4 * day).Format("20060102"); !slices.Contains(days, next) {
			t.Errorf("days of %s = %v, want them to contain %s", table, days, next)
		}
	}
}

func TestRotateDays_RowsOfDaysWithoutAPartitionAreInTheDefaultPartition(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.rotate(noon())
	for _, off := range []time.Duration{-40 * day, 9 * day, 9*day + time.Hour, 4000 * day} {
		r.ingest(noon().Add(off))
	}
	rest := "deliveries_default"
	wantEqual(t, "places", r.partitionsOfRows("deliveries"), []string{rest, rest, rest, rest})
	work := r.claim()
	if n := r.complete(work, deliveries.OutcomeDelivered, noon()); n != 4 {
		t.Fatalf("stored results in the default partition = %d, want 4", n)
	}
	r.rotate(noon().Add(day)) // the row that is too old is deleted; rows of future days stay
	wantEqual(t, "places", r.partitionsOfRows("deliveries"), []string{rest, rest, rest})
	r.rotate(noon().Add(7 * day))
	ninth := "deliveries" + noon().Add(9*day).Format("_20060102")
	wantEqual(t, "partitions of deliveries once the day has a partition", r.partitionsOfRows("deliveries"), []string{ninth, ninth, rest})
	wantEqual(t, "partitions of events once the day has a partition", r.partitionsOfRows("events"), []string{"events" + ninth[len("deliveries"):], "events" + ninth[len("deliveries"):], "events_default"})
}

func TestRotateDays_QueuedDeliveriesAreKeptWhenTheirDayIsDropped(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.rotate(noon())
	r.ingest(noon())
	r.complete(r.claim(), deliveries.OutcomeDelivered, noon())
	open := r.ingest(noon())
	r.setStatus("paused")
	late := noon().Add(keep + 2*day)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := r.job.RotateDays(t.Context(), late); err != nil {
				t.Errorf("concurrent RotateDays: %v", err)
			}
		})
	}
	all.Wait()
	wantEqual(t, "deliveries", r.partitionsOfRows("deliveries"), []string{"deliveries_default"})
	wantEqual(t, "bodies", r.partitionsOfRows("events"), []string{"events_default"})
	if n := r.count(`SELECT count(*) FROM attempts`); n != 0 {
		t.Errorf("attempts = %d, want 0", n)
	}
	r.rotate(late.Add(20 * day)) // the subscription is still paused, so its delivery must stay
	r.setStatus("active")
	work := r.claim()
	if len(work) != 1 {
		t.Fatalf("claimed deliveries = %d, want 1", len(work))
	}
	if work[0].EventID != open {
		t.Errorf("claimed event = %s, want %s", work[0].EventID, open)
	}
	if string(work[0].Body) != `{}` {
		t.Errorf("claimed body = %s, want {}", work[0].Body)
	}
	if n := r.complete(work, deliveries.OutcomeDelivered, late); n != 1 {
		t.Fatalf("stored results = %d, want 1", n)
	}
	d, err := r.store.Delivery(t.Context(), r.workspace, r.sub, work[0].DeliveryID)
	if err != nil {
		t.Fatalf("Delivery: %v", err)
	}
	if d.Status != deliveries.Delivered {
		t.Errorf("status = %q, want delivered", d.Status)
	}
	r.rotate(late.Add(21 * day))
	for _, table := range []string{"deliveries", "events"} {
		if left := r.partitionsOfRows(table); len(left) != 0 {
			t.Errorf("rows of %s = %v after their end, want none", table, left)
		}
	}
}

// rotateUntil calls RotateDays for consecutive days until done is closed. After span days it starts
// with day 0 again. first is the number of the first day.
func (r *fixture) rotateUntil(done <-chan struct{}, first, span int) {
	r.t.Helper()
	for d := first; ; d = (d + 1) % span {
		select {
		case <-done:
			return
		default:
		}
		if err := r.job.RotateDays(r.t.Context(), noon().AddDate(0, 0, d)); err != nil && !lockTimeout(err) {
			r.t.Errorf("RotateDays: %v", err)
		}
	}
}

func TestRotateDays_ConcurrentInsertsAreNotLost(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		span  int
		stays bool
	}{
		"while partitions are created":             {12, true},
		"while partitions are created and dropped": {60, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newFixture(t)
			done := make(chan struct{})
			var turning sync.WaitGroup
			stop := sync.OnceFunc(func() { close(done); turning.Wait() })
			defer stop()
			for n := range 2 {
				turning.Go(func() { r.rotateUntil(done, n, row.span) })
			}
			const events = 60
			settled := 0
			for i := range events {
				// these times are before, within and after the days that have partitions
				r.ingest(noon().AddDate(0, 0, i%20-4))
				if i%10 == 9 {
					settled += r.complete(r.claim(), deliveries.OutcomeDelivered, noon())
				}
			}
			stop()
			if settled != events {
				t.Errorf("stored results = %d, want %d", settled, events)
			}
			if n := r.count(`SELECT count(*) FROM deliveries WHERE status = 'delivered'`); row.stays && n != events {
				t.Errorf("deliveries = %d, want %d", n, events)
			}
		})
	}
}

func TestRetentionJob_RotatesDaysAtStartWithTheClockOfTheDatabase(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = r.job.Run(ctx) })
	defer running.Wait()
	defer stop()
	today := time.Now().UTC()
	testkit.Until(t, "there are eleven partitions of attempts", func() bool {
		return len(r.partitionDays("attempts")) >= 11
	})
	days := r.partitionDays("deliveries")
	for _, ahead := range []int{0, 2} {
		if want := today.AddDate(0, 0, ahead).Format("20060102"); !slices.Contains(days, want) {
			t.Errorf("days = %v, want them to contain %s", days, want)
		}
	}
}

func TestRotateDays_ServiceRoleCannotChangePartitionsDirectly(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.rotate(noon())
	today := noon().Format("20060102")
	for _, sql := range []string{
		`CREATE TABLE mine (id int)`,
		`DROP TABLE deliveries_` + today,
		`TRUNCATE deliveries_` + today,
		`SELECT count(*) FROM events_` + today,
		`UPDATE events_` + today + ` SET body = ''`,
		`DELETE FROM events_default`,
		`ALTER TABLE deliveries DETACH PARTITION deliveries_` + today,
		`SELECT renew_default('events', now(), '{}')`,
		`SELECT add_day('workspaces', '2026-01-01')`,
		`SELECT add_day('delivery_queue', '2026-01-01')`,
		`SELECT drop_day('workspaces', '2030-01-01')`,
		`SELECT prune_default('delivery_queue', '2030-01-01')`,
		`SELECT add_day('events; DROP TABLE workspaces', '2026-01-01')`,
	} {
		if _, err := r.pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s by the running role succeeds, want an error", sql)
		}
	}
	if n := r.count(`SELECT count(*) FROM subscriptions`); n != 1 {
		t.Errorf("subscriptions = %d, want 1", n)
	}
}
