package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
)

var testTopic = kafka.CallRequests.Name

func startAt(t *testing.T, c *Consumer, p partition) position {
	t.Helper()
	stored, err := c.startPositions(t.Context(), []assignedPartition{{p, uuid.UUID{1}, -1}})
	if err != nil {
		t.Fatal(err)
	}
	return stored[p]
}

func countRows(t *testing.T, pool *pgxpool.Pool, table string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		t.Fatalf("count rows of %s: %v", table, err)
	}
	return n
}

// applyBench applies chunks of records. Its handler inserts the value of each record into the table
// effect.
type applyBench struct {
	*Consumer
	t         *testing.T
	positions map[int32]position

	mu      sync.Mutex
	calls   []string
	commits int // number of calls of Outcome.OnCommit
	// respond returns the outcome of the handler. It can be nil.
	respond func(values []string) (Outcome, error)
	// last makes the handler write the effects with Outcome.Last.
	last bool
}

func newApplyBench(t *testing.T, respond func(values []string) (Outcome, error)) *applyBench {
	b := &applyBench{t: t, positions: map[int32]position{}, respond: respond}
	pool := pgtest.New(t, "inbox_test", Migrations, outbox.Migrations)
	_, err := pgtest.Owner(t, pool, "inbox_test").Exec(t.Context(), `CREATE TABLE effect (
		n bigint GENERATED ALWAYS AS IDENTITY, value text NOT NULL CHECK (value <> 'unfit'), tx bigint DEFAULT
			pg_current_xact_id()::text::bigint)`)
	if err != nil {
		t.Fatal(err)
	}
	b.Consumer = NewConsumer("dialer", kafka.Config{}, pool, Handlers{testTopic: b.handleBatch}, nil,
		prometheus.NewRegistry())
	return b
}

func (b *applyBench) handleBatch(ctx context.Context, tx pgx.Tx, batch []Record) (Outcome, error) {
	values := make([]string, len(batch))
	for i, rec := range batch {
		values[i] = string(rec.Value)
		if rec.Span == nil {
			return Outcome{}, errors.New("a record has no span")
		}
	}
	b.mu.Lock()
	b.calls = append(b.calls, strings.Join(values, " "))
	b.mu.Unlock()
	const insert = "INSERT INTO effect (value) SELECT unnest(@values::text[])"
	args := pg.Args{"values": values}
	if !b.last {
		if _, err := tx.Exec(ctx, insert, args); err != nil {
			return Outcome{}, err
		}
	}
	outcome := Outcome{Results: make([]Result, len(values))}
	if b.respond != nil {
		var err error
		if outcome, err = b.respond(values); err != nil {
			return Outcome{}, err
		}
	}
	if b.last {
		outcome.Last = &pgx.Batch{}
		outcome.Last.Queue(insert, args)
	}
	outcome.OnCommit = func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.commits++
	}
	return outcome, nil
}

// records returns records with these values. The key of a record is the part of its value before
// the dash.
func (b *applyBench) records(values ...string) (records []*incoming) {
	for _, value := range values {
		key, _, _ := strings.Cut(value, "-")
		records = append(records, &incoming{Record: kafka.Record{
			Topic: testTopic, EventID: uuid.Must(uuid.NewV7()), Key: key, Value: []byte(value),
			Headers: map[string]string{}, Time: time.Now().UTC(),
		}})
	}
	return records
}

func (b *applyBench) chunk(number int32, records ...*incoming) *chunk {
	p := partition{testTopic, number}
	before, known := b.positions[number]
	if !known {
		before = startAt(b.t, b.Consumer, p)
	}
	return &chunk{
		ctx: b.t.Context(), partition: p, records: records,
		startPosition: before, endOffset: before.nextOffset + int64(len(records)),
		done: make(chan error, 1),
	}
}

func (b *applyBench) applyNext(records ...*incoming) error {
	ch := b.chunk(0, records...)
	err := b.apply(b.t.Context(), ch)
	if err == nil {
		b.positions[0] = ch.newPosition
	}
	return err
}

func (b *applyBench) mustApply(records ...*incoming) {
	b.t.Helper()
	if err := b.applyNext(records...); err != nil {
		b.t.Fatalf("apply: %v", err)
	}
}

func (b *applyBench) wantCalls(want ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if diff := cmp.Diff(want, b.calls); diff != "" {
		b.t.Errorf("calls of the handler (-want +got):\n%s", diff)
	}
}

func (b *applyBench) wantEffects(want string) {
	b.t.Helper()
	rows, _ := b.pool.Query(b.t.Context(), "SELECT value FROM effect ORDER BY n")
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.t.Fatal(err)
	}
	if got := strings.Join(values, " "); got != want {
		b.t.Errorf("effects = %q, want %q", got, want)
	}
}

func (b *applyBench) wantPosition(number int32, want int64) {
	b.t.Helper()
	var got int64
	err := b.pool.QueryRow(b.t.Context(), "SELECT next_offset FROM inbox_positions WHERE partition = $1",
		number).Scan(&got)
	if err != nil {
		b.t.Fatal(err)
	}
	if got != want {
		b.t.Errorf("position of partition %d = %d, want %d", number, got, want)
	}
}

func (b *applyBench) wantResults(want map[string]float64) {
	b.t.Helper()
	got := map[string]float64{}
	for _, result := range []string{applied, skipped, duplicate, parked} {
		if n := testutil.ToFloat64(b.metrics.records.WithLabelValues(testTopic, result)); n > 0 {
			got[result] = n
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Errorf("records by result (-want +got):\n%s", diff)
	}
}

func TestApply_DuplicatesAreNotPassedToTheHandler(t *testing.T) {
	t.Parallel()
	b := newApplyBench(t, func(values []string) (Outcome, error) {
		results := make([]Result, len(values))
		for i, value := range values {
			if value == "b-1" {
				results[i] = Skip(errors.New("no interest"))
			}
		}
		return Outcome{Results: results}, nil
	})
	records := b.records("a-1", "b-1", "a-2", "c-1")
	records = append(records, b.copies([]*incoming{records[0], records[2]})...)
	b.mustApply(records...)
	b.mustApply(append(b.records("d-1"), b.copies(records)...)...)
	b.wantCalls("a-1 b-1 a-2 c-1", "d-1")
	b.wantEffects("a-1 b-1 a-2 c-1 d-1")
	b.wantPosition(0, 13)
	// The first batch contains 2 duplicates. The second batch repeats all 6 records of the first
	// batch.
	b.wantResults(map[string]float64{applied: 4, skipped: 1, duplicate: 8})
	if b.commits != 2 {
		t.Errorf("calls of OnCommit = %d, want 2", b.commits)
	}
}

func (b *applyBench) copies(records []*incoming) (copies []*incoming) {
	for _, rec := range records {
		copies = append(copies, &incoming{Record: rec.Record})
	}
	return copies
}

func TestApply_ErrorRollsTheTransactionBack(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	tests := []struct {
		name    string
		respond func([]string) (Outcome, error)
	}{
		{name: "handler returns an error", respond: func([]string) (Outcome, error) { return Outcome{}, away }},
		{name: "handler panics", respond: func([]string) (Outcome, error) { panic("unlucky") }},
		{name: "handler returns a wrong number of results", respond: func([]string) (Outcome, error) {
			return Outcome{Results: make([]Result, 7)}, nil
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newApplyBench(t, test.respond)
			if err := b.applyNext(b.records("a-1", "b-1", "c-1")...); err == nil {
				t.Error("apply = nil, want an error")
			}
			b.wantEffects("")
			b.wantPosition(0, 0)
			if got := countRows(t, b.pool, "inbox_events"); got != 0 {
				t.Errorf("stored event ids = %d, want 0", got)
			}
			if b.commits != 0 {
				t.Errorf("calls of OnCommit = %d, want 0", b.commits)
			}
		})
	}
}

func TestApply_ParksARecordAndAppliesTheOthersInOneTransaction(t *testing.T) {
	t.Parallel()
	b := newApplyBench(t, func(values []string) (Outcome, error) {
		results := make([]Result, len(values))
		for i, value := range values {
			if value == "a-2" {
				results[i] = Park(errors.New("newer than this build"))
			}
		}
		return Outcome{Results: results}, nil
	})
	b.mustApply(b.records("a-1", "b-1", "a-2", "c-1", "a-3")...)
	b.wantCalls("a-1 b-1 a-2 c-1 a-3", "a-1 b-1 c-1")
	b.wantEffects("a-1 b-1 c-1")
	b.wantPosition(0, 5)
	var transactions int
	err := b.pool.QueryRow(t.Context(), `SELECT count(DISTINCT xmin::text) FROM (
		SELECT xmin FROM effect UNION ALL SELECT xmin FROM dead_letters UNION ALL SELECT xmin FROM inbox_positions
		UNION ALL SELECT xmin FROM outbox) AS rows`).Scan(&transactions)
	if err != nil {
		t.Fatal(err)
	}
	if transactions != 1 {
		t.Errorf("transactions that wrote effects, parked records, dead letters and the position = %d, want 1", transactions)
	}
	if got := countRows(t, b.pool, "dead_letters"); got != 2 {
		t.Errorf("parked records = %d, want 2", got)
	}
	if got := countRows(t, b.pool, "outbox"); got != 2 {
		t.Errorf("dead letters in the outbox = %d, want 2", got)
	}

	b.mustApply(b.records("a-4", "d-1")...)
	b.wantEffects("a-1 b-1 c-1 d-1")
	b.wantResults(map[string]float64{applied: 4, parked: 3})
}

func TestApply_ParksAllRecordsAfterOneRollback(t *testing.T) {
	t.Parallel()
	b := newApplyBench(t, func(values []string) (Outcome, error) {
		results := make([]Result, len(values))
		for i, value := range values {
			if strings.HasPrefix(value, "bad") {
				results[i] = Park(errors.New("newer than this build: " + value))
			}
		}
		return Outcome{Results: results}, nil
	})
	b.mustApply(b.records("bad1-1", "a-1", "bad2-1", "bad3-1", "bad3-2")...)
	b.wantCalls("bad1-1 a-1 bad2-1 bad3-1 bad3-2", "a-1")
	b.wantResults(map[string]float64{applied: 1, parked: 4})
	var reasons int
	if err := b.pool.QueryRow(t.Context(), `SELECT count(DISTINCT error) FROM dead_letters`).Scan(&reasons); err != nil {
		t.Fatal(err)
	}
	if reasons != 4 {
		t.Errorf("different reasons = %d, want 4", reasons)
	}
}

func TestWorker_AppliesRecordsOneByOneAfterAFailedStatement(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		last bool
	}{
		{name: "statements of the handler"},
		{name: "statements sent with COMMIT", last: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newApplyBench(t, func(values []string) (Outcome, error) {
				for _, value := range values {
					if value == "a-2" {
						panic("unlucky")
					}
				}
				return Outcome{Results: make([]Result, len(values))}, nil
			})
			b.last = test.last
			w := &worker{group: &group{consumer: b.Consumer}, stopping: make(chan struct{}), ctx: t.Context(),
				partition: partition{testTopic, 0}}
			w.position = startAt(t, b.Consumer, w.partition)
			records := b.records("a-1", "a-2", "b-1", "a-3", "c-1", "unfit", "d-1")
			for i, rec := range records {
				rec.Offset = int64(i)
			}
			if err := w.applyShared(records); err == nil {
				t.Error("applyShared = nil, want an error")
			}
			for _, rec := range records {
				if err := w.applySingle(rec); err != nil {
					t.Fatalf("applySingle %s: %v", rec.Value, err)
				}
			}
			b.wantEffects("a-1 b-1 c-1 d-1")
			b.wantPosition(0, 7)
			if got := countRows(t, b.pool, "dead_letters"); got != 3 {
				t.Errorf("parked records = %d, want 3 (a-2, a-3 and unfit)", got)
			}
		})
	}
}

func TestApply_RepeatsTheTransactionAfterAConflict(t *testing.T) {
	t.Parallel()
	b := newApplyBench(t, nil)
	if _, err := pgtest.Owner(t, b.pool, "inbox_test").Exec(t.Context(), `
		CREATE SEQUENCE tries;
		GRANT USAGE ON tries TO inbox_test_app;
		CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('tries') < 3 THEN RAISE EXCEPTION 'conflict' USING ERRCODE = 'serialization_failure'; END IF;
			RETURN NULL;
		END $$;
		CREATE CONSTRAINT TRIGGER conflict AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE
			FUNCTION conflict()`); err != nil {
		t.Fatal(err)
	}
	b.mustApply(b.records("a-1")...)
	b.wantCalls("a-1", "a-1", "a-1")
	b.wantEffects("a-1")
	if b.commits != 1 {
		t.Errorf("calls of OnCommit = %d, want 1", b.commits)
	}
}

// A process that was halted during a rebalance can apply old records later. The event ids are
// deleted, so that only the position can prevent a second effect.
func TestApply_OldPositionIsRejected(t *testing.T) {
	t.Parallel()
	b := newApplyBench(t, nil)
	records := b.records("a-1", "b-1")
	stale := b.chunk(0, b.copies(records)...)
	if err := b.apply(t.Context(), b.chunk(0, records...)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.pool.Exec(t.Context(), "DELETE FROM inbox_events"); err != nil {
		t.Fatal(err)
	}
	if err := b.apply(t.Context(), stale); !errors.Is(err, errPositionChanged) {
		t.Errorf("apply from a position that has moved = %v, want errPositionChanged", err)
	}
	b.wantEffects("a-1 b-1")
	b.wantPosition(0, 2)
}

func TestApply_PartitionsShareATransaction(t *testing.T) {
	t.Parallel()
	b := newApplyBench(t, nil)
	chunks := []*chunk{b.chunk(2, b.records("a-1")...), b.chunk(5, b.records("b-1", "b-2")...)}
	if err := b.apply(t.Context(), chunks...); err != nil {
		t.Fatal(err)
	}
	b.wantCalls("a-1 b-1 b-2")
	b.wantPosition(2, 1)
	b.wantPosition(5, 2)

	// If the position of one partition has changed, the whole transaction must be rolled back.
	chunks = []*chunk{b.chunk(2, b.records("a-2")...), b.chunk(5, b.records("b-3")...)}
	if _, err := b.pool.Exec(t.Context(), "UPDATE inbox_positions SET next_offset = 9 WHERE partition = 5"); err != nil {
		t.Fatal(err)
	}
	if err := b.apply(t.Context(), chunks...); !errors.Is(err, errPositionChanged) {
		t.Errorf("apply = %v, want errPositionChanged", err)
	}
	b.wantEffects("a-1 b-1 b-2")
	b.wantPosition(2, 1)
}

// While another transaction has an old snapshot, vacuum cannot remove the old versions of a
// position's row.
func TestApply_MovingAPositionReadsNoOldRowVersions(t *testing.T) {
	t.Parallel()
	b := newApplyBench(t, nil)
	p := startAt(t, b.Consumer, partition{testTopic, 0})
	err := pgx.BeginTxFunc(t.Context(), b.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(old pgx.Tx) error {
		const keepOpen = `SET LOCAL idle_in_transaction_session_timeout = 0; SELECT count(*) FROM inbox_positions`
		if _, err := old.Exec(t.Context(), keepOpen); err != nil {
			return err
		}
		const moves = 5000
		_, err := pgtest.Owner(t, b.pool, "inbox_test").Exec(t.Context(), fmt.Sprintf(`DO $$ BEGIN
			FOR i IN 1 .. %d LOOP UPDATE inbox_positions SET next_offset = i; END LOOP; END $$`, moves))
		if err != nil {
			return err
		}
		p = startAt(t, b.Consumer, partition{testTopic, 0})
		if p.nextOffset != moves {
			t.Fatalf("position = %d, want %d", p.nextOffset, moves)
		}
		pool, watched := pgtest.Watch(t, b.pool)
		c := NewConsumer("dialer", kafka.Config{}, pool, Handlers{testTopic: b.handleBatch}, nil, nil)
		var batch pgx.Batch
		ch := &chunk{partition: partition{testTopic, 0}, startPosition: p, endOffset: p.nextOffset + 1}
		c.queueMove(&batch, ch, &ch.newPosition.ctid)
		if err := pool.SendBatch(t.Context(), &batch).Close(); err != nil {
			return err
		}
		if !ch.newPosition.ctid.Valid {
			t.Error("the position was not moved")
		}
		pages, plans := watched.Pages(t, pgtest.GenericPlan)
		if pages > 10 {
			t.Errorf("pages read by one move = %d, want at most 10; plan:\n%s", pages, plans)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
