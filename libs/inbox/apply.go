package inbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"

	"ringfence.dev/libs/failpoint"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/telemetry"
)

// incoming is a fetched record that is being applied.
type incoming struct {
	kafka.Record
	// parkReason is the error because of which the record must be parked (moved to the dead-letter
	// topic). It is nil if the record must not be parked.
	parkReason error
	// outcome is what the last transaction did with the record: applied, skipped, parked or duplicate.
	// resultReason is the error of a parked record.
	outcome      string
	resultReason error
}

// parkError means that the handler cannot apply the record, so that it must be parked. The
// transaction is rolled back and repeated.
type parkError struct {
	rec    *incoming
	reason error
}

func (e *parkError) Error() string { return fmt.Sprintf("park event %s: %v", e.rec.EventID, e.reason) }
func (e *parkError) Unwrap() error { return e.reason }

// apply applies chunks of one topic in one transaction. A chunk contains consecutive records of one
// partition. If the handler parks a record, apply rolls the transaction back and repeats it with
// this record parked.
func (c *Consumer) apply(ctx context.Context, chunks ...*chunk) error {
	for {
		onCommit, err := c.applyOnce(ctx, chunks)
		var park *parkError
		if errors.As(err, &park) {
			continue // the repeated transaction parks the record, because parkReason is set
		}
		if err != nil {
			return err
		}
		failpoint.Inject("inbox: after commit")
		if onCommit != nil {
			onCommit()
		}
		c.reportCommitted(chunks)
		return nil
	}
}

// reportCommitted counts the records of a committed transaction and logs the parked records. If
// there are parked records, it wakes the relay.
func (c *Consumer) reportCommitted(chunks []*chunk) {
	wake := false
	for _, ch := range chunks {
		for _, rec := range ch.records {
			c.metrics.records.WithLabelValues(rec.Topic, rec.outcome).Inc()
			switch rec.outcome {
			case applied:
				c.appliedCount.Add(1)
			case parked:
				c.logParked(rec)
				wake = true
			}
		}
	}
	if wake {
		c.relay.Wake()
	}
}

func (c *Consumer) applyOnce(ctx context.Context, chunks []*chunk) (onCommit func(), err error) {
	// last is set if the transaction applies exactly one record and runs the statements of
	// Outcome.Last. If these statements then fail permanently, the record is parked.
	var last *incoming
	err = pg.InPipeline(ctx, c.pool, func(tx *pg.Pipeline) error {
		last = nil
		found, err := c.beginChunks(ctx, tx, chunks)
		if err != nil {
			return err
		}
		fresh, toPark := found.splitRecords(chunks)
		outcome, err := c.handleRecords(ctx, tx, fresh)
		if err != nil {
			return err
		}
		if err := c.parkRecords(ctx, tx, toPark); err != nil {
			return err
		}
		onCommit = outcome.OnCommit
		if outcome.Last != nil {
			tx.QueueBatch(outcome.Last)
			if len(fresh) == 1 {
				last = fresh[0]
			}
		}
		failpoint.Inject("inbox: before commit")
		return nil
	})
	if err != nil && last != nil && isPermanent(err) {
		last.parkReason = err
		return nil, &parkError{last, err}
	}
	return onCommit, err
}

// splitRecords splits the records into those to apply and those to park, without duplicates. A
// record must be parked if an earlier record of its key is parked.
func (b *lookup) splitRecords(chunks []*chunk) (fresh, toPark []*incoming) {
	for _, ch := range chunks {
		for _, rec := range ch.records {
			if !b.fresh[rec.EventID] {
				rec.outcome = duplicate
				continue
			}
			delete(b.fresh, rec.EventID) // a second record with this id is a duplicate
			rec.outcome, rec.resultReason = applied, rec.parkReason
			if rec.resultReason == nil && b.parkedKeys[hashOf(rec.Key)] {
				rec.resultReason = errKeyParked
			}
			if rec.resultReason == nil {
				fresh = append(fresh, rec)
				continue
			}
			rec.outcome, toPark = parked, append(toPark, rec)
			if rec.Key != "" {
				b.parkedKeys[hashOf(rec.Key)] = true
			}
		}
	}
	return fresh, toPark
}

// handleRecords passes records of one topic to the handler. If the handler parks records,
// handleRecords sets their parkReason and returns a parkError for the first of them.
func (c *Consumer) handleRecords(ctx context.Context, tx pgx.Tx, records []*incoming) (outcome Outcome, err error) {
	if len(records) == 0 {
		return outcome, nil
	}
	batch := make([]Record, len(records))
	for i, rec := range records {
		batch[i] = c.startSpan(ctx, rec)
		defer batch[i].Span.End()
	}
	outcome, err = c.callHandler(ctx, tx, batch)
	if err != nil {
		for _, rec := range batch {
			rec.Span.SetStatus(codes.Error, err.Error())
		}
		if len(records) == 1 && isPermanent(err) {
			records[0].parkReason = err
			return outcome, &parkError{records[0], err}
		}
		return outcome, err
	}
	if len(outcome.Results) != len(records) {
		return outcome, fmt.Errorf("the handler of %s returned %d results for %d records",
			records[0].Topic, len(outcome.Results), len(records))
	}
	var park *parkError
	for i, result := range outcome.Results {
		switch result.outcome {
		case parked:
			batch[i].Span.SetStatus(codes.Error, result.reason.Error())
			records[i].parkReason = result.reason
			if park == nil {
				park = &parkError{records[i], result.reason}
			}
		case skipped:
			records[i].outcome = skipped
		}
	}
	if park != nil {
		return outcome, park
	}
	return outcome, nil
}

// startSpan starts the span of a record's handling, and returns the record with this span.
func (c *Consumer) startSpan(ctx context.Context, rec *incoming) Record {
	_, span := telemetry.Continue(ctx, "process "+rec.Topic, rec.Headers[kafka.HeaderTraceParent], time.Since(rec.Time),
		attribute.String("messaging.system", "kafka"),
		attribute.String("messaging.destination.name", rec.Topic),
		attribute.String("messaging.consumer.group.name", c.name),
		attribute.String("messaging.message.id", rec.EventID.String()),
		attribute.String("messaging.message.type", rec.Type),
	)
	return Record{Record: rec.Record, Span: span}
}

var errPanicked = errors.New("handler panicked")

func (c *Consumer) callHandler(ctx context.Context, tx pgx.Tx, batch []Record) (outcome Outcome, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%w: %v\n%s", errPanicked, fault, debug.Stack())
		}
	}()
	return c.handlers[batch[0].Topic](ctx, tx, batch)
}

// isPermanent reports whether each retry would fail with the same error.
func isPermanent(err error) bool {
	return kafka.IsPark(err) || errors.Is(err, errPanicked) || errors.Is(err, outbox.ErrTooLarge) || isInvalidValue(err)
}

// isInvalidValue reports whether the database rejected the values because of a data exception, a
// violation of NOT NULL or CHECK, or a limit of the database.
func isInvalidValue(err error) bool {
	var fault *pgconn.PgError
	if !errors.As(err, &fault) || len(fault.Code) != 5 {
		return false
	}
	classes := []string{"22", "54"} // data exception, program limit exceeded
	// 23502 is a not-null violation and 23514 a check violation. If a partition is missing, Postgres
	// also reports 23514, but without the name of a constraint.
	return slices.Contains(classes, fault.Code[:2]) || fault.Code == "23502" ||
		fault.Code == "23514" && fault.ConstraintName != ""
}

// isRefused reports whether the database executed the statements and rejected the result: a
// constraint was violated, or a function raised an exception. The record can succeed after other
// rows have changed, so it is retried for a limited time (worker.applySingle).
func isRefused(err error) bool {
	var fault *pgconn.PgError
	if !errors.As(err, &fault) || len(fault.Code) != 5 || isMissingPartition(err) {
		return false
	}
	return fault.Code[:2] == "23" || fault.Code == "P0001"
}
