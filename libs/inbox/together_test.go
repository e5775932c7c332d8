package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/pgtest"
)

// togetherBench applies records through a function that takes them all; it keeps what each call got and how each run ended.
type togetherBench struct {
	*Consumer
	mu    sync.Mutex
	calls []string // the values of each call, joined
	ends  []bool
	wakes int
	sick  func(values []string) ([]error, error)
}

func newTogetherBench(t *testing.T, sick func(values []string) ([]error, error)) *togetherBench {
	b := &togetherBench{sick: sick}
	pool := pgtest.New(t, "inbox_test", Migrations, outbox.Migrations)
	if _, err := pgtest.Owner(t, pool, "inbox_test").Exec(t.Context(), "CREATE TABLE effect (n bigint GENERATED ALWAYS AS IDENTITY, value text NOT NULL CHECK (value <> 'unfit'))"); err != nil {
		t.Fatal(err)
	}
	handlers := Handlers{kafka.CallRequests.Name: Together(b.handleAll)}
	b.Consumer = NewConsumer("dialer", kafka.Config{}, pool, handlers, nil, prometheus.NewRegistry(), func() { b.wakes++ })
	return b
}

func (b *togetherBench) handleAll(ctx context.Context, tx pgx.Tx, recs []Fresh) ([]error, error) {
	values := make([]string, len(recs))
	for i, rec := range recs {
		values[i] = string(rec.Value)
		if rec.Span == nil {
			return nil, errors.New("a record has no span")
		}
	}
	Ended(tx, func(committed bool) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.ends = append(b.ends, committed)
	})
	b.mu.Lock()
	b.calls = append(b.calls, strings.Join(values, " "))
	b.mu.Unlock()
	var batch pgx.Batch
	batch.Queue("INSERT INTO effect (value) SELECT unnest(@values::text[])", pg.Args{"values": values})
	if err := pg.LaterAll(ctx, tx, &batch); err != nil {
		return nil, err
	}
	return b.sick(values)
}

func (b *togetherBench) records(values ...string) (all []delivery) {
	for _, value := range values {
		key, _, _ := strings.Cut(value, "-")
		all = append(all, delivery{Record: kafka.Record{Topic: kafka.CallRequests.Name, EventID: uuid.New(), Key: key, Value: []byte(value), Headers: map[string]string{}}})
	}
	return all
}

func (b *togetherBench) effects(t *testing.T) string {
	t.Helper()
	rows, _ := b.pool.Query(t.Context(), "SELECT value FROM effect ORDER BY n")
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(values, " ")
}

func (b *togetherBench) result(name string) float64 {
	return testutil.ToFloat64(b.metrics.records.WithLabelValues(kafka.CallRequests.Name, name))
}

func well([]string) ([]error, error) { return nil, nil }

func TestTogether_OneCallForAllFreshRecords(t *testing.T) {
	t.Parallel()
	b := newTogetherBench(t, func(values []string) ([]error, error) {
		verdicts := make([]error, len(values))
		for i, value := range values {
			if value == "b-1" {
				verdicts[i] = fmt.Errorf("decide: %w", kafka.Skipf("no interest"))
			}
		}
		return verdicts, nil
	})
	all := b.records("a-1", "b-1", "a-2", "c-1")
	all = append(all, all[0], all[2]) // twice in the batch
	if err := b.apply(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if err := b.apply(t.Context(), append(b.records("d-1"), all...)); err != nil { // and again in another
		t.Fatal(err)
	}
	if got := strings.Join(b.calls, "; "); got != "a-1 b-1 a-2 c-1; d-1" {
		t.Errorf("calls = %s, want each fresh record once, all of a transaction together", got)
	}
	if got := b.effects(t); got != "a-1 b-1 a-2 c-1 d-1" {
		t.Errorf("effects = %s", got)
	}
	if !slices.Equal(b.ends, []bool{true, true}) {
		t.Errorf("ends = %v, want each transaction's once", b.ends)
	}
	if got := [3]float64{b.result(applied), b.result(skipped), b.result(duplicate)}; got != [3]float64{4, 1, 8} {
		t.Errorf("applied, skipped, duplicate = %v, want 4, 1, 8", got)
	}
	if b.wakes != 2 {
		t.Errorf("%d wakes, want one a transaction", b.wakes)
	}
}

// TestTogether_OneFaultRollsAllBack: what a worker does then, one record after another, the tests of the consumer show.
func TestTogether_OneFaultRollsAllBack(t *testing.T) {
	t.Parallel()
	for name, sick := range map[string]func([]string) ([]error, error){
		"an error": func([]string) ([]error, error) { return nil, errors.New("away") },
		"a park": func(values []string) ([]error, error) {
			return []error{nil, kafka.Parkf("newer"), nil}[:len(values)], nil
		},
		"a panic":                    func([]string) ([]error, error) { panic("unlucky") },
		"verdicts for somebody else": func([]string) ([]error, error) { return make([]error, 7), nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTogetherBench(t, sick)
			err := b.apply(t.Context(), b.records("a-1", "b-1", "c-1"))
			if err == nil {
				t.Fatalf("err = nil, want an error")
			}
			if b.effects(t) != "" {
				t.Errorf("err: b.effects(t) = %q, want \"\"", b.effects(t))
			}
			if !slices.Equal(b.ends, []bool{false}) {
				t.Errorf("err: b.ends = %v, want %v", b.ends, []bool{false})
			}
			if b.wakes != 0 {
				t.Errorf("err: b.wakes = %v, want 0", b.wakes)
			}
			var claimed int
			if err := b.pool.QueryRow(t.Context(), "SELECT count(*) FROM inbox").Scan(&claimed); err != nil {
				t.Errorf("QueryRow: %v", err)
			} else if claimed != 0 {
				t.Errorf("claimed = %v, want 0", claimed)
			}
		})
	}
}

func TestTogether_AloneARecordIsParkedForItsFault(t *testing.T) {
	t.Parallel()
	b := newTogetherBench(t, func(values []string) ([]error, error) {
		switch values[0] {
		case "a-panic":
			panic("unlucky")
		case "a-newer":
			return []error{kafka.Parkf("newer")}, nil
		}
		return nil, nil
	})
	for _, value := range []string{"a-panic", "a-newer", "unfit"} {
		if err := b.apply(t.Context(), b.records(value)); !kafka.IsPark(err) {
			t.Errorf("%s: %v, want a park", value, err)
		}
	}
	if !slices.Equal(b.ends, []bool{false, false, false}) {
		t.Errorf("ends = %v, want false for each", b.ends)
	}
}

// TestTogether_AConflictEndsEachRun: a serialization failure is tried again inside one apply.
func TestTogether_AConflictEndsEachRun(t *testing.T) {
	t.Parallel()
	b := newTogetherBench(t, well)
	if _, err := pgtest.Owner(t, b.pool, "inbox_test").Exec(t.Context(), `
		CREATE SEQUENCE tries; GRANT USAGE ON SEQUENCE tries TO PUBLIC;
		CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF nextval('tries') < 3 THEN RAISE EXCEPTION 'conflict' USING ERRCODE = 'serialization_failure'; END IF;
			RETURN NULL;
		END $$;
		CREATE CONSTRAINT TRIGGER conflict AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION conflict()`); err != nil {
		t.Fatal(err)
	}
	if err := b.apply(t.Context(), b.records("a-1", "b-1")); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(b.ends, []bool{false, false, true}) {
		t.Errorf("ends = %v, want two runs that conflicted in COMMIT and one that did not", b.ends)
	}
	if got := b.effects(t); got != "a-1 b-1" {
		t.Errorf("effects = %s", got)
	}
}

func TestTogether_APoisonousRecordIsParkedAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	b := newTogetherBench(t, func(values []string) ([]error, error) {
		if slices.Contains(values, "a-2") {
			panic("unlucky")
		}
		return nil, nil
	})
	w := &worker{group: &group{consumer: b.Consumer}, stopping: make(chan struct{}), ctx: t.Context()}
	all := b.records("a-1", "a-2", "b-1", "a-3", "c-1", "unfit", "d-1")
	if w.try(all) == nil {
		t.Fatal("the batch was applied")
	}
	for _, d := range all { // as settlePart does
		if !w.settleOne(d) {
			t.Fatal("a record was given up")
		}
	}
	if got := b.effects(t); got != "a-1 b-1 c-1 d-1" {
		t.Errorf("effects = %s, want those of the healthy keys and what stood before the poison", got)
	}
	var left int
	if err := b.pool.QueryRow(t.Context(), "SELECT count(*) FROM parked").Scan(&left); err != nil {
		t.Errorf("QueryRow: %v", err)
	} else if left != 3 {
		t.Errorf("left = %v, want 3", left)
	}
	// A parked key in a batch is parked there, the others are applied together.
	if err := b.apply(t.Context(), b.records("a-4", "e-1", "e-2")); err != nil {
		t.Fatal(err)
	}
	if got := b.calls[len(b.calls)-1]; got != "e-1 e-2" {
		t.Errorf("the last call had %s, want e-1 e-2", got)
	}
}

func TestTogether_QuietWakesNobody(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "inbox_test", Migrations, outbox.Migrations)
	wakes := 0
	all := func(_ context.Context, tx pgx.Tx, recs []Fresh) ([]error, error) {
		if string(recs[0].Value) != "loud" {
			Quiet(tx)
		}
		return nil, nil
	}
	c := NewConsumer("dialer", kafka.Config{}, pool, Handlers{kafka.CallRequests.Name: Together(all)}, nil, nil, func() { wakes++ })
	b := &togetherBench{Consumer: c}
	once := b.records("a", "b")
	for _, batch := range [][]delivery{once, append(b.records("c"), once...), b.records("d")} {
		if err := c.apply(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	if wakes != 0 {
		t.Errorf("quiet records woke %d times", wakes)
	}
	if err := c.apply(t.Context(), b.records("loud", "e")); err != nil {
		t.Errorf("apply: %v", err)
	} else if wakes != 1 {
		t.Errorf("wakes = %v, want 1", wakes)
	}
}
