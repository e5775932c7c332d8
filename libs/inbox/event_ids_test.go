package inbox

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/testkit/pgtest"
)

func (b *applyBench) at(value string, daysAgo int) *incoming {
	rec := b.records(value)[0]
	rec.Time = time.Now().UTC().AddDate(0, 0, -daysAgo)
	return rec
}

func TestApply_RecognizesAnEventThatWasPublishedTwice(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name         string
		first, again int // days since the event time, in the first and in the second publication
	}{
		{name: "today", first: 0, again: 0},
		{name: "on the oldest day of inbox_events", first: 8, again: 8},
		{name: "older than the oldest day of inbox_events", first: 9, again: 9},
		{name: "a year-old record of a compacted topic", first: 400, again: 400},
		{name: "both publications by a clock that is a month ahead", first: -30, again: -30},
		{name: "published again after midnight", first: 1, again: 0},
		{name: "published again after a restore", first: 7, again: 0},
		{name: "second publication has an older event time", first: 0, again: 2},
		{name: "became too old for inbox_events between the publications", first: 8, again: 9},
		{name: "first publication by a clock that is a month ahead", first: -30, again: 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newApplyBench(t, nil)
			rec := b.at("a-1", test.first)
			if test.first != test.again {
				// uuid.New returns an id of version 4. The outbox generates ids of version 7.
				rec.EventID = uuid.New()
			}
			again := b.copies([]*incoming{rec})
			again[0].Time = b.at("", test.again).Time
			b.mustApply(rec)
			b.mustApply(again...)
			b.wantCalls("a-1")
			b.wantPosition(0, 2)
		})
	}
}

func TestApply_RecognizesADuplicateOfAnOldEvent(t *testing.T) {
	t.Parallel()
	b := newApplyBench(t, nil)
	rec := b.at("a-1", 9)
	b.addDay(9)
	b.exec("INSERT INTO inbox_events VALUES ('dialer', $1, $2, $3)", testTopic, rec.EventID, rec.Time)
	b.mustApply(rec)
	b.wantCalls()
}

// If the id were stored under tomorrow's day, a repetition of the event after midnight would have
// another day and would not be recognized.
func TestApply_StoresIDsOfFutureEventsAsLateEvents(t *testing.T) {
	t.Parallel()
	b := newApplyBench(t, nil)
	b.mustApply(b.at("a-1", -2))
	if got := countRows(t, b.pool, "inbox_late_events"); got != 1 {
		t.Errorf("rows of inbox_late_events = %d, want 1", got)
	}
}

func (b *applyBench) addDay(daysAgo int) {
	b.t.Helper()
	day := time.Now().UTC().AddDate(0, 0, -daysAgo)
	b.exec(fmt.Sprintf("CREATE TABLE inbox_events_%s PARTITION OF inbox_events FOR VALUES FROM ('%s') TO ('%s')",
		day.Format("20060102"), day.Format(time.DateOnly), day.AddDate(0, 0, 1).Format(time.DateOnly)))
}

func (b *applyBench) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := pgtest.Owner(b.t, b.pool, "inbox_test").Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *applyBench) days() (n int) {
	b.t.Helper()
	const countDays = `SELECT count(*) FROM pg_inherits WHERE inhparent = 'inbox_events'::regclass`
	if err := b.pool.QueryRow(b.t.Context(), countDays).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// A backup reads the table of event ids for hours. The next partitions must be created in this
// time.
func TestRetain_CreatesPartitionsDuringALongRead(t *testing.T) {
	t.Parallel()
	b := newApplyBench(t, nil)
	b.addDay(20)
	b.exec("DROP TABLE inbox_events_" + time.Now().UTC().AddDate(0, 0, 3).Format("20060102"))
	before := b.days()
	err := pgx.BeginFunc(t.Context(), pgtest.Owner(t, b.pool, "inbox_test"), func(reader pgx.Tx) error {
		if _, err := reader.Exec(t.Context(), "SELECT count(*) FROM inbox_events"); err != nil {
			return err
		}
		return b.Retain(t.Context())
	})
	if err != nil {
		t.Fatalf("Retain while the table is read: %v", err)
	}
	if got := b.days(); got != before+1 {
		t.Errorf("partitions = %d, want %d: one was created and none was dropped", got, before+1)
	}
	if err := b.Retain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := b.days(); got != before {
		t.Errorf("partitions afterwards = %d, want %d", got, before)
	}
}

func TestRetain_DeletesOldPartitionsAndOldIDsOfLateEvents(t *testing.T) {
	t.Parallel()
	b := newApplyBench(t, nil)
	owner := pgtest.Owner(t, b.pool, "inbox_test")
	_, err := owner.Exec(t.Context(), `
		CREATE TABLE inbox_events_20200101 PARTITION OF inbox_events FOR VALUES FROM ('2020-01-01') TO ('2020-01-02');
		INSERT INTO inbox_events VALUES ('dialer', 't', gen_random_uuid(), '2020-01-01');
		INSERT INTO inbox_late_events (consumer, topic, event_id, received_at)
			SELECT 'dialer', 't', gen_random_uuid(), now() - interval '32 days' FROM generate_series(1, 12000)
			UNION ALL SELECT 'dialer', 't', gen_random_uuid(), now() - interval '30 days' FROM generate_series(1, 10)`)
	if err != nil {
		t.Fatal(err)
	}
	b.addDay(9)
	b.addDay(10)
	if err := b.Retain(t.Context()); err != nil {
		t.Fatal(err)
	}
	for table, want := range map[string]int{"inbox_events": 0, "inbox_late_events": 10} {
		if got := countRows(t, b.pool, table); got != want {
			t.Errorf("rows of %s = %d, want %d", table, got, want)
		}
	}
	if got := b.days(); got != 13 {
		t.Errorf("partitions = %d, want 13: 9 days before today, today and 3 days after", got)
	}
}

func TestApply_CreatesAMissingPartition(t *testing.T) {
	t.Parallel()
	b := newApplyBench(t, nil)
	today := time.Now().UTC().Format("20060102")
	if _, err := pgtest.Owner(t, b.pool, "inbox_test").Exec(t.Context(), "DROP TABLE inbox_events_"+today); err != nil {
		t.Fatal(err)
	}
	w := &worker{group: &group{consumer: b.Consumer}, stopping: make(chan struct{}), ctx: t.Context(),
		partition: partition{testTopic, 0}}
	w.position = startAt(t, b.Consumer, w.partition)
	if err := w.applySingle(b.at("a-1", 0)); err != nil {
		t.Fatal(err)
	}
	b.wantEffects("a-1")
}
