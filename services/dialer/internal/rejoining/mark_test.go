package rejoining_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/pgtest"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/store/past"
)

// once is a fact with the time that the database had for it, and the log's.
type once struct {
	at, logged time.Time
	event      *eventv1.DialEvent
}

// toldThen publishes facts to one partition, in this order.
func (r *restored) toldThen(facts ...once) {
	r.Helper()
	client, err := kafka.NewClient(r.cfg, "test", nil)
	if err != nil {
		r.Fatal(err)
	}
	defer client.Close()
	// The test sets the log's time itself, in place of the broker.
	createTime := "CreateTime"
	altered, err := kadm.NewClient(client.Client).AlterTopicConfigs(r.Context(),
		[]kadm.AlterConfig{{Op: kadm.SetConfig, Name: "message.timestamp.type", Value: &createTime}}, kafka.DialEvents.Name)
	if err != nil {
		r.Fatal(err)
	}
	for _, topic := range altered {
		if topic.Err != nil {
			r.Fatal(topic.Err)
		}
	}
	var records []*kgo.Record
	for _, f := range facts {
		f.event.WorkspaceId, f.event.OccurredAt = r.workspace.String(), timestamppb.New(f.at)
		value, err := proto.Marshal(f.event)
		if err != nil {
			r.Fatal(err)
		}
		records = append(records, &kgo.Record{Topic: kafka.DialEvents.Name, Key: []byte("one"), Value: value, Timestamp: f.logged, Headers: []kgo.RecordHeader{
			{Key: kafka.HeaderID, Value: []byte(uuid.NewString())}, {Key: kafka.HeaderTime, Value: []byte(f.at.UTC().Format(time.RFC3339Nano))},
		}})
	}
	if err := client.ProduceSync(r.Context(), records...).FirstErr(); err != nil {
		r.Fatal(err)
	}
}

// marked has the database's mark lie so long ago, on its timeline or another.
func (r *restored) marked(ago time.Duration, timeline string) {
	r.Helper()
	_, err := r.pool.Exec(r.Context(), `INSERT INTO told_until (timeline, until) SELECT coalesce(nullif($1, 'its own'), substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)), now() - $2::interval
		ON CONFLICT (one) DO UPDATE SET timeline = excluded.timeline, until = excluded.until`, timeline, ago)
	if err != nil {
		r.Fatal(err)
	}
}

func (r *restored) mark() past.Mark {
	r.Helper()
	mark, err := past.New(r.pool).Mark(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return mark
}

// fenced are those of the requests that are fenced.
func (r *restored) fenced(ids ...uuid.UUID) (names []int) {
	r.Helper()
	for i, id := range ids {
		var is bool
		if err := r.pool.QueryRow(r.Context(), `SELECT EXISTS (SELECT FROM fences WHERE call_request_id = $1)`, id).Scan(&is); err != nil {
			r.Fatal(err)
		}
		if is {
			names = append(names, i)
		}
	}
	return names
}

// TestAwait_ReadsFromTheMark: three requests were dialled, three hours, five minutes and no time ago, and the database knows of none of them. Which of them it then knows of tells
// from where it read.
func TestAwait_ReadsFromTheMark(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		mark func(r *restored)
		// slow is how far the log's clock lags behind the database's.
		slow time.Duration
		want []int
	}{
		{"an hour ago", func(r *restored) { r.marked(time.Hour, "its own") }, 0, []int{1, 2}},
		{"before all of it", func(r *restored) { r.marked(4*time.Hour, "its own") }, 0, []int{0, 1, 2}},
		{"a second ago, and the log's clock lags a little", func(r *restored) { r.marked(time.Second, "its own") }, time.Minute, []int{1, 2}},
		{"nobody has said so yet", func(*restored) {}, 0, []int{0, 1, 2}},
		{"clocks that are apart", func(r *restored) { r.marked(time.Hour, "its own") }, 20 * time.Minute, []int{0, 1, 2}},
		{"clocks so far apart that nothing seems to be told since", func(r *restored) { r.marked(time.Second, "its own") }, 5 * time.Hour, []int{0, 1, 2}},
		{"the log's clock is ahead", func(r *restored) { r.marked(time.Second, "its own") }, -20 * time.Minute, []int{1, 2}},
		{
			"the log's clock is far ahead", func(r *restored) { r.marked(time.Hour, "its own") }, -5 * time.Hour,
			[]int{0, 1, 2},
		},
		{"on another timeline", func(r *restored) { r.marked(time.Hour, "another") }, 0, []int{1, 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRestored(t)
			tt.mark(r)
			early, late, last, known := uuid.New(), uuid.New(), uuid.New(), uuid.New()
			r.order(known)
			var facts []once
			tell := func(ago time.Duration, event *eventv1.DialEvent) {
				at := time.Now().Add(-ago)
				facts = append(facts, once{at, at.Add(-tt.slow), event})
			}
			tell(3*time.Hour, called(early, uuid.New(), "completed", 3))
			for range 2 * 20 { // more than a glance sees
				tell(2*time.Hour, rescheduled(known, time.Now().Add(-time.Hour)))
			}
			tell(5*time.Minute, dialing(late))
			tell(4*time.Minute, called(late, uuid.New(), "completed", 3))
			tell(0, called(last, uuid.New(), "completed", 3))
			r.toldThen(facts...)
			begun := time.Now()
			r.await()
			if got := r.fenced(early, late, last); !slices.Equal(got, tt.want) {
				t.Errorf("it knows of %v, want %v", got, tt.want)
			}
			switch mark := r.mark(); {
			case !mark.Stands():
				t.Error("the mark is not valid, want a valid mark")
			case mark.Until == nil:
				t.Error("mark.Until = nil, want a value")
			case mark.Until.Before(begun):
				t.Errorf("mark.Until = %s, want at or after the begin of Await at %s", mark.Until, begun)
			}
		})
	}
}

// TestAwait_AnotherTimelineIsGoneThroughWhateverWasToldLast: behind a failover the other dialers tell on, and the newest facts are theirs, of the new database.
func TestAwait_AnotherTimelineIsGoneThroughWhateverWasToldLast(t *testing.T) {
	t.Parallel()
	for timeline, want := range map[string][]int{"another": {0}, "": {0}, "its own": nil} {
		t.Run(timeline, func(t *testing.T) {
			t.Parallel()
			r := newRestored(t)
			lost, known := uuid.New(), uuid.New()
			r.order(lost)
			r.order(known)
			r.toldAs("one", dialing(lost), called(lost, uuid.New(), "completed", 3))
			for range 40 {
				r.toldAs("one", rescheduled(known, time.Now().Add(-time.Hour)))
			}
			r.marked(time.Second, timeline)
			r.await()
			if got := r.fenced(lost); !slices.Equal(got, want) {
				t.Errorf("it knows of %v, want %v", got, want)
			}
			if mark := r.mark(); !mark.Stands() {
				t.Errorf("the mark does not stand afterwards: %+v", mark)
			}
		})
	}
}

// TestAwait_WhatWasFoundOlderIsHeldByEverybody: whoever finds it out tells the others by the mark, and how far back it lies is not lost if he is killed.
func TestAwait_WhatWasFoundOlderIsHeldByEverybody(t *testing.T) {
	t.Parallel()
	r := newRestored(t)
	lost := uuid.New()
	r.order(lost)
	r.marked(time.Hour, "its own")
	before := *r.mark().Until
	r.told(dialing(lost), called(lost, uuid.New(), "completed", 3))
	owner := pgtest.Owner(t, r.pool, "dialer")
	if _, err := owner.Exec(t.Context(), `CREATE FUNCTION trip() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN RAISE 'killed'; END $f$;
		CREATE TRIGGER trip BEFORE INSERT ON fences FOR EACH ROW EXECUTE FUNCTION trip()`); err != nil {
		t.Fatal(err)
	}
	if err := r.awaitFor(3 * time.Second); err == nil {
		t.Fatal("the hold is over, and nothing is settled")
	}
	st := past.New(r.pool)
	if err := st.MoveMark(t.Context()); err != nil { // a guard of another process that has not looked yet
		t.Fatal(err)
	}
	if mark := r.mark(); mark.Stands() {
		t.Fatal("mark is valid = true, want false")
	} else if !mark.Until.Equal(before) {
		t.Fatalf("the mark: mark.Until = %v, want %v", mark.Until, before)
	}
	if _, err := owner.Exec(t.Context(), `DROP TRIGGER trip ON fences`); err != nil {
		t.Fatal(err)
	}
	r.await()
	if got := r.fenced(lost); len(got) != 1 {
		t.Errorf("fenced: length of got = %d, want 1", len(got))
	} else if !r.mark().Stands() {
		t.Error("fenced: mark is valid = false, want true")
	}
}

// TestMark_MovesWhereItStands: and never on another timeline; nobody vouches for a database that has become another since he looked. The running role may do all of it.
func TestMark_MovesWhereItStands(t *testing.T) {
	t.Parallel()
	r := newRestored(t)
	st := past.New(r.pool)
	switch mark := r.mark(); {
	case !mark.Stands():
		t.Fatal("the mark is not valid, want a valid mark")
	case mark.Until != nil:
		t.Fatalf("mark.Until = %v, want nil", mark.Until)
	case len(mark.Now) != 8:
		t.Fatalf("length of mark.Now = %v, want 8", len(mark.Now))
	}
	for timeline, moves := range map[string]bool{"its own": true, "another": false, "": false} {
		r.marked(time.Hour, timeline)
		before := *r.mark().Until
		if err := st.MoveMark(t.Context()); err != nil {
			t.Fatal(err)
		}
		if after := *r.mark().Until; after.After(before) != moves {
			t.Errorf("on %q: it moved from %s to %s", timeline, before, after)
		}
	}
	if err := st.Vouch(t.Context(), "00000000"); err == nil {
		t.Error("somebody vouched for a timeline that the server does not write")
	}
	if err := st.Vouch(t.Context(), r.mark().Now); err != nil {
		t.Errorf("store the mark: %v", err)
	} else if !r.mark().Stands() {
		t.Error("an unconfirmed mark: mark is valid = false, want true")
	}
	r.marked(-time.Hour, "its own")
	if until := *r.mark().Until; until.Unix() != 0 {
		t.Errorf("a mark that lies ahead is taken for %s", until)
	}
}
