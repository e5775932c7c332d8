package inbox

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pgtest"
)

// at returns a record of an event with its own time.
func (b *applyBench) at(value string, daysAgo int) *incoming {
	rec := b.records(value)[0]
	rec.Time = time.Now().UTC().AddDate(0, 0, -daysAgo)
	return rec
}

// TestApply_FindsAnEventThatWasPublishedTwice covers events of different ages: the day of the event's own
// time decides where its id is stored, so both records find the same place.
func TestApply_FindsAnEventThatWasPublishedTwice(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		daysAgo int
	}{
		{name: "today", daysAgo: 0},
		{name: "oldest day that is kept", daysAgo: 8},
		{name: "older than the kept days", daysAgo: 9},
		{name: "a compacted record", daysAgo: 400},
		{name: "a clock that is ahead", daysAgo: -30},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newApplyBench(t, nil)
			rec := b.at("a-1", test.daysAgo)
			b.mustApply(rec)
			b.mustApply(b.copies([]*incoming{rec})...)
			b.wantCalls("a-1")
			b.wantPosition(0, 2)
		})
	}
}

func TestRetain_DropsDaysAndDeletesLateIDs(t *testing.T) {
	t.Parallel()
	b := newApplyBench(t, nil)
	owner := pgtest.Owner(t, b.pool, "inbox_test")
	_, err := owner.Exec(t.Context(), `
		CREATE TABLE inbox_events_20200101 PARTITION OF inbox_events FOR VALUES FROM ('2020-01-01') TO ('2020-01-02');
		INSERT INTO inbox_events VALUES ('dialer', 't', gen_random_uuid(), '2020-01-01');
		INSERT INTO inbox_late_events (consumer, topic, event_id, received_at)
			SELECT 'dialer', 't', gen_random_uuid(), now() - interval '32 days' FROM generate_series(1, 12000)
			UNION ALL SELECT 'dialer', 't', gen_random_uuid(), now() - interval '30 days' FROM generate_series(1, 10);
		INSERT INTO inbox (consumer, topic, event_id, received_at, has_position)
			SELECT 'dialer', 't', gen_random_uuid(), now() - interval '9 days', true FROM generate_series(1, 12000)
			UNION ALL SELECT 'dialer', 't', gen_random_uuid(), now() - interval '7 days', true FROM generate_series(1, 10)`)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Retain(t.Context()); err != nil {
		t.Fatal(err)
	}
	for table, want := range map[string]int{"inbox_events": 0, "inbox_late_events": 10, "inbox": 10} {
		if got := countRows(t, b.pool, table); got != want {
			t.Errorf("rows of %s = %d, want %d", table, got, want)
		}
	}
	var partitions int
	const countPartitions = `SELECT count(*) FROM pg_inherits WHERE inhparent = 'inbox_events'::regclass`
	if err := b.pool.QueryRow(t.Context(), countPartitions).Scan(&partitions); err != nil {
		t.Fatal(err)
	}
	if partitions != 12 {
		t.Errorf("partitions = %d, want 12: 8 days before today, today and 3 days after", partitions)
	}
}

// TestApply_CreatesAMissingPartition covers a process whose retention has not run for days.
func TestApply_CreatesAMissingPartition(t *testing.T) {
	t.Parallel()
	b := newApplyBench(t, nil)
	today := time.Now().UTC().Format("20060102")
	if _, err := pgtest.Owner(t, b.pool, "inbox_test").Exec(t.Context(), "DROP TABLE inbox_events_"+today); err != nil {
		t.Fatal(err)
	}
	w := &worker{group: &group{consumer: b.Consumer}, stopping: make(chan struct{}), ctx: t.Context(), partition: partition{testTopic, 0}}
	w.position = startAt(t, b.Consumer, w.partition)
	if err := w.applySingle(b.at("a-1", 0)); err != nil {
		t.Fatal(err)
	}
	b.wantEffects("a-1")
}

// What the release before positions does in the transaction of a record.
const oldReleaseInsert = `
INSERT INTO inbox (consumer, topic, event_id)
SELECT @consumer, @topic, id FROM unnest(@ids::uuid[]) AS id GROUP BY id ORDER BY id
ON CONFLICT DO NOTHING
RETURNING event_id`

// startUpgrade sets until when the old release may apply records, in hours from now.
func (b *applyBench) startUpgrade(hours int) {
	b.t.Helper()
	_, err := pgtest.Owner(b.t, b.pool, "inbox_test").Exec(b.t.Context(), `
		DO $$ DECLARE until timestamptz := now() + make_interval(hours => `+strconv.Itoa(hours)+`); BEGIN
			UPDATE inbox_upgrade SET old_release_until = until;
			DROP TRIGGER inbox_old_release ON inbox;
			EXECUTE format('CREATE TRIGGER inbox_old_release BEFORE INSERT ON inbox FOR EACH ROW
				WHEN (NEW.has_position IS NULL AND clock_timestamp() > %L::timestamptz)
				EXECUTE FUNCTION inbox_refuse_old_release()', until);
		END $$`)
	if err != nil {
		b.t.Fatal(err)
	}
}

// oldRelease stores ids as the release before positions does and returns how many were new to it.
func (b *applyBench) oldRelease(records ...*incoming) (fresh int64, err error) {
	var ids []uuid.UUID
	for _, rec := range records {
		ids = append(ids, rec.EventID)
	}
	tag, err := b.pool.Exec(b.t.Context(), oldReleaseInsert, pgx.NamedArgs{"consumer": "dialer", "topic": testTopic, "ids": ids})
	return tag.RowsAffected(), err
}

func TestUpgrade_BothReleasesFindEachOthersRecords(t *testing.T) {
	t.Parallel()
	b := newApplyBench(t, nil)
	b.startUpgrade(1)
	old, both := b.records("old-1", "old-2"), b.records("new-1")
	if _, err := b.oldRelease(old...); err != nil {
		t.Fatal(err)
	}
	b.mustApply(append(b.copies(old), both...)...)
	b.wantCalls("new-1")
	fresh, err := b.oldRelease(both...)
	if err != nil {
		t.Fatal(err)
	}
	if fresh != 0 {
		t.Errorf("records of the new release that the old one applies = %d, want 0", fresh)
	}
}

func TestUpgrade_OldReleaseIsRefusedAfterwards(t *testing.T) {
	t.Parallel()
	b := newApplyBench(t, nil)
	b.startUpgrade(1)
	old, next := b.records("old-1"), b.records("new-1")
	if _, err := b.oldRelease(old...); err != nil {
		t.Fatal(err)
	}
	b.startUpgrade(-2)
	if _, err := b.oldRelease(next...); err == nil {
		t.Error("the old release could apply a record, want an error")
	}
	b.mustApply(append(b.copies(old), next...)...) // ids of the old release are still found
	b.wantCalls("new-1")
	if got := countRows(t, b.pool, "inbox"); got != 1 {
		t.Errorf("rows of inbox = %d, want 1: ids are stored only in inbox_events", got)
	}
}
