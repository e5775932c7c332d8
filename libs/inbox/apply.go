package inbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"

	"ringfence.dev/libs/crash"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/telemetry"
)

// delivery is a record and, when it is to be parked, why.
type delivery struct {
	kafka.Record
	fault error
}

// apply settles records of one topic in one transaction: their ids, their effects, and what is parked. A handler's
// error rolls all of it back.
func (c *Consumer) apply(ctx context.Context, all []delivery) error {
	results := make([]string, len(all))
	var quiet, later bool
	var ends endings
	err := pg.InPipeline(ctx, c.pool, func(tx *pg.Pipeline) error {
		ends.tell(false) // of the run before, which a conflict ended
		quiet, later = true, false
		claim, err := c.claim(ctx, tx, all)
		if err != nil {
			return err
		}
		sum := &sum{hand: hand{Pipeline: tx, ends: &ends}}
		defer sum.endSpans()
		for i, d := range all {
			h := &hand{Pipeline: tx, ends: &ends, result: &results[i]}
			if len(all) > 1 {
				h.sum = sum
			}
			if results[i], err = c.applyOne(ctx, h, claim, d); err != nil {
				return err
			}
			quiet, later = quiet && (h.quiet || h.summed || results[i] == duplicate), later || h.later
		}
		if len(sum.fresh) > 0 {
			if err := sum.settle(ctx); err != nil {
				return err
			}
			quiet, later = quiet && sum.quiet, later || sum.later
		}
		crash.Point("inbox: before commit")
		return nil
	})
	if later && neverFits(err) {
		err = kafka.Parkf("the database can never take it: %w", err)
	}
	if err != nil {
		ends.tell(false)
		return err
	}
	crash.Point("inbox: after commit")
	ends.tell(true)
	if !quiet {
		c.wake()
	}
	for i, d := range all {
		if results[i] == applied {
			c.applied.Add(1)
		}
		c.metrics.records.WithLabelValues(d.Topic, results[i]).Inc()
		if results[i] == parked {
			c.tellParked(d)
		}
	}
	return nil
}

func (c *Consumer) applyOne(ctx context.Context, tx pgx.Tx, claim *claim, d delivery) (result string, err error) {
	if !claim.fresh[d.EventID] {
		return duplicate, nil
	}
	delete(claim.fresh, d.EventID) // it may stand in the batch twice
	hash := sha256.Sum256([]byte(d.Key))
	if d.fault == nil && claim.parkedKeys[hash] {
		d.fault = errKeyParked
	}
	if d.fault != nil {
		if d.Key != "" {
			claim.parkedKeys[hash] = true
		}
		return parked, c.park(ctx, tx, d)
	}
	err = c.handle(ctx, tx, d.Record)
	if kafka.IsSkip(err) {
		return skipped, nil
	}
	return applied, err
}

// claim is what this transaction may do: the ids that are new, and the keys that are parked.
type claim struct {
	fresh      map[uuid.UUID]bool
	parkedKeys map[[sha256.Size]byte]bool
}

// In the order of the ids, so that two transactions with the same records wait for each other and do not deadlock.
const insertIDs = `
INSERT INTO inbox (consumer, topic, event_id)
SELECT @consumer, @topic, id FROM unnest(@ids::uuid[]) AS id GROUP BY id ORDER BY id
ON CONFLICT DO NOTHING
RETURNING event_id`

// A statement of its own after the insert: when that had to wait for another transaction, this one sees what it parked.
const selectParkedKeys = `
SELECT DISTINCT key_hash FROM parked
WHERE consumer = @consumer AND topic = @topic AND key_hash = ANY(@hashes::bytea[])`

func (c *Consumer) claim(ctx context.Context, tx *pg.Pipeline, all []delivery) (*claim, error) {
	ids, hashes := make([]uuid.UUID, len(all)), make([][]byte, 0, len(all))
	for i, d := range all {
		ids[i] = d.EventID
		if d.Key != "" { // records without a key have no order to keep
			hash := sha256.Sum256([]byte(d.Key))
			hashes = append(hashes, hash[:])
		}
	}
	args := pg.Args{"consumer": c.name, "topic": all[0].Topic, "ids": ids, "hashes": hashes}
	claim := &claim{fresh: map[uuid.UUID]bool{}, parkedKeys: map[[sha256.Size]byte]bool{}}
	var queued pgx.Batch
	queued.Queue(insertIDs, args).Query(func(rows pgx.Rows) error {
		fresh, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		for _, id := range fresh {
			claim.fresh[id] = true
		}
		return err
	})
	queued.Queue(selectParkedKeys, args).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
		for _, hash := range found {
			claim.parkedKeys[[sha256.Size]byte(hash)] = true
		}
		return err
	})
	if err := tx.Ask(ctx, &queued); err != nil {
		return nil, fmt.Errorf("claim %d records of %s: %w", len(all), all[0].Topic, err)
	}
	return claim, nil
}

// handle calls the topic's function under a span that continues the record's trace. A panic is the record's fault.
func (c *Consumer) handle(ctx context.Context, tx pgx.Tx, rec kafka.Record) (err error) {
	ctx, span := telemetry.Continue(ctx, "process "+rec.Topic, rec.Headers[kafka.HeaderTraceParent], time.Since(rec.Time),
		attribute.String("messaging.system", "kafka"),
		attribute.String("messaging.destination.name", rec.Topic),
		attribute.String("messaging.consumer.group.name", c.name),
		attribute.String("messaging.message.id", rec.EventID.String()),
		attribute.String("messaging.message.type", rec.Type),
	)
	defer func() {
		if h, ours := tx.(*hand); !ours || !h.summed {
			span.End()
		}
	}()
	defer func() {
		if fault := recover(); fault != nil {
			err = kafka.Parkf("handler panicked: %v\n%s", fault, debug.Stack())
		}
		if neverFits(err) {
			err = kafka.Parkf("the database can never take it: %w", err)
		}
		if errors.Is(err, outbox.ErrTooLarge) {
			err = kafka.Parkf("its effect can never be published: %w", err)
		}
		if err != nil && !kafka.IsSkip(err) {
			span.SetStatus(codes.Error, err.Error())
		}
	}()
	return c.handlers[rec.Topic](ctx, tx, rec)
}

// neverFits says that the database refused the values themselves (a data exception, a value that a column may not have, a
// limit of its own): trying again would hold up everybody's partition for ever.
func neverFits(err error) bool {
	var fault *pgconn.PgError
	if !errors.As(err, &fault) || len(fault.Code) != 5 {
		return false
	}
	switch fault.Code[:2] {
	case "22", "54": // data exception, program limit exceeded
		return true
	}
	// Not null, and a check. A partition's bounds are no named check: a row that met a partition just being made fits when it is tried again.
	return fault.Code == "23502" || fault.Code == "23514" && fault.ConstraintName != ""
}

// refuses reports whether the database ran the record's statements and refused their result: a
// constraint or an exception that a function raised. The state that causes it can change, so the
// record is tried again, but not forever (worker.settleOne). Errors of the connection, timeouts,
// conflicts and missing objects are no refusals.
func refuses(err error) bool {
	var fault *pgconn.PgError
	if !errors.As(err, &fault) || len(fault.Code) != 5 {
		return false
	}
	if fault.Code == "23514" && fault.ConstraintName == "" { // the partition for the row is missing
		return false
	}
	return fault.Code[:2] == "23" || fault.Code == "P0001"
}
