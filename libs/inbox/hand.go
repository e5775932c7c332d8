package inbox

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/pg"
)

// hand is a record's transaction as its handler gets it.
type hand struct {
	*pg.Pipeline
	ends   *endings
	result *string
	later  bool // a statement of its was queued
	quiet  bool
	// sum is where a handler that takes all records at once gathers them; nil when the record is alone. summed says that this one was.
	sum    *sum
	summed bool
}

// Postpone queues a handler's statement behind those of the records before. none is a skip, or nil: it is too late to fail.
func (h *hand) Postpone(sql string, args pg.Args, none error) {
	h.later = true
	h.Later(sql, args, func(did pgconn.CommandTag) {
		if did.RowsAffected() == 0 && kafka.IsSkip(none) && h.result != nil {
			*h.result = skipped
		}
	})
}

// LaterAll queues a handler's batch.
func (h *hand) LaterAll(batch *pgx.Batch) {
	h.later = true
	h.Pipeline.LaterAll(batch)
}

// Quiet says that this record leaves nothing that anybody waits for: neither an event in the outbox nor work for whom NewConsumer
// was told to wake. A transaction of quiet records wakes nobody.
func Quiet(tx pgx.Tx) {
	if h, ours := tx.(*hand); ours {
		h.quiet = true
	}
}

// Fresh is a record that was not applied yet, with the span under which it is; the consumer ends that.
type Fresh struct {
	kafka.Record
	Span trace.Span
}

// HandleAll applies all fresh records of a transaction at once, in their order; those of one key stand in the order of their partition.
// It answers a verdict for each record, or none when all are applied: nil, kafka.Skipf, or another error, which rolls everything back,
// as err does. Then each record is tried alone, and what Handle promises holds for it: a park, a panic or a value that the database can
// never take parks that one only.
type HandleAll func(ctx context.Context, tx pgx.Tx, recs []Fresh) (verdicts []error, err error)

// Together is the Handle of a topic whose records are applied at once.
func Together(all HandleAll) Handle {
	return func(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
		fresh := Fresh{Record: rec, Span: trace.SpanFromContext(ctx)}
		if h, ours := tx.(*hand); ours && h.sum != nil {
			h.summed = true
			h.sum.add(all, fresh, h.result)
			return nil
		}
		verdicts, err := all(ctx, tx, []Fresh{fresh})
		if err == nil && len(verdicts) > 0 {
			err = verdicts[0]
		}
		return err
	}
}

// Ended has f called once when tx has ended: committed is true after COMMIT succeeded, and false after anything else, also when nobody
// knows how COMMIT ended, and for each run that a conflict has repeated, before the next begins. f must not block. heard is false when tx is not
// a consumer's own (a replay's): then f is never called.
func Ended(tx pgx.Tx, f func(committed bool)) (heard bool) {
	h, ours := tx.(*hand)
	if ours {
		*h.ends = append(*h.ends, f)
	}
	return ours
}

// endings are who waits for the end of a transaction.
type endings []func(committed bool)

func (e *endings) tell(committed bool) {
	told := *e
	*e = nil
	for _, f := range told {
		f(committed)
	}
}

// sum is the records of one transaction that go to one function, and the transaction as it gets it.
type sum struct {
	hand
	all     HandleAll
	fresh   []Fresh
	results []*string
}

func (s *sum) add(all HandleAll, rec Fresh, result *string) {
	s.all, s.fresh, s.results = all, append(s.fresh, rec), append(s.results, result)
}

// settle applies what was gathered. A panic is one record's fault, and nobody knows whose.
func (s *sum) settle(ctx context.Context) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("handler panicked over %d records: %v\n%s", len(s.fresh), fault, debug.Stack())
		}
		if err != nil {
			for _, rec := range s.fresh {
				rec.Span.SetStatus(codes.Error, err.Error())
			}
		}
	}()
	verdicts, err := s.all(ctx, &s.hand, s.fresh)
	if err != nil {
		return err
	}
	if len(verdicts) != 0 && len(verdicts) != len(s.fresh) {
		return fmt.Errorf("handler gave %d verdicts over %d records", len(verdicts), len(s.fresh))
	}
	for i, verdict := range verdicts {
		if kafka.IsSkip(verdict) {
			*s.results[i] = skipped
		} else {
			err = cmp.Or(err, verdict)
		}
	}
	return err
}

func (s *sum) endSpans() {
	for _, rec := range s.fresh {
		rec.Span.End()
	}
}
