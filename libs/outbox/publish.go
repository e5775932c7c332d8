package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"ringfence.dev/libs/failpoint"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/pg"
)

// outboxRow is a row of the outbox, an event that has not been published yet.
type outboxRow struct {
	ID        int64
	EventID   uuid.UUID
	Topic     string
	Key       []byte
	Headers   map[string]string
	Payload   []byte
	CreatedAt time.Time
}

// oldestRows returns the rows from the floor onwards, each with the xmin of the snapshot. If there
// are no rows, the statement returns one row that contains only the xmin.
//
// If the relay read from the last published row instead of the floor, it would miss a row with a
// lower id that commits later.
const oldestRows = `
SELECT pg_snapshot_xmin(snapshot)::text::bigint,
       oldest.id, oldest.event_id, oldest.topic, oldest.key, oldest.headers, oldest.payload, oldest.created_at
FROM (SELECT pg_current_snapshot() AS snapshot) AS taken
LEFT JOIN (
	SELECT id, event_id, topic, key, headers, payload, created_at,
	       sum(coalesce(octet_length(payload), 0)) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
	FROM outbox
	WHERE id >= @floor
	ORDER BY id
	LIMIT @limit
) AS oldest ON coalesce(bytes_before, 0) < 16777216
ORDER BY oldest.id`

const deleteRows = `DELETE FROM outbox WHERE id = ANY($1) RETURNING pg_current_xact_id()::text::bigint`

// maxBytes limits the memory that a batch needs: a batch ends after the row with which it reaches
// maxBytes.
const maxBytes = 16 << 20

// relayBatch publishes the oldest rows and deletes those that Kafka acknowledged. No transaction is
// open while it publishes. It returns the number of rows, and whether the outbox had no more rows.
func (s *session) relayBatch(ctx context.Context) (found int, noneLeft bool, err error) {
	if err := s.verifyLease(s.relay.lease.renewInterval); err != nil {
		return 0, false, err
	}
	started := time.Now()
	from, sweep := s.floor.readFrom(started)
	rows, xmin, err := s.readRows(from)
	if err != nil {
		return 0, false, fmt.Errorf("read the outbox: %w", err)
	}
	noneLeft = len(rows) < batchRows && weight(rows) < maxBytes
	if sweep && noneLeft {
		s.floor.lastSweep = started
	}
	if len(rows) == 0 {
		s.floor.updateAfterRead(0, noneLeft, xmin, 0)
		s.relay.age.Store(&ageSample{at: started})
		return 0, noneLeft, nil
	}
	published := time.Now()
	faults, stopped := s.publishRows(ctx, rows)
	if faults == nil {
		return 0, false, stopped
	}
	failpoint.Inject("outbox: after ack")
	deletedBy, err := s.deleteRows(deletableIDs(rows, faults))
	if err != nil {
		return 0, false, fmt.Errorf("delete published rows: %w", err)
	}
	s.relay.metrics.published(rows, faults, time.Since(published))
	if stopped != nil {
		return 0, false, stopped
	}
	if err := errors.Join(faults...); err != nil {
		return 0, false, s.relay.createMissingTopics(ctx, rows, faults)
	}
	s.floor.updateAfterRead(rows[len(rows)-1].ID, noneLeft, xmin, deletedBy)
	if noneLeft {
		// The read returned all rows, and all of them are published. So the age is 0: any row in the
		// outbox was committed after the read.
		s.relay.age.Store(&ageSample{at: started})
	}
	return len(rows), noneLeft, nil
}

func weight(rows []outboxRow) (bytes int) {
	for _, row := range rows {
		bytes += len(row.Payload)
	}
	return bytes
}

// deleteRows deletes rows. It returns the id of its transaction, or 0 if it deleted no row.
func (s *session) deleteRows(ids []int64) (transaction int64, err error) {
	err = s.queryRow(deleteRows, &transaction, ids)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return transaction, err
}

// readRows returns the oldest rows from firstID onwards, and the transaction id below which all
// transactions had ended.
func (s *session) readRows(firstID int64) (rows []outboxRow, xmin int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
	defer cancel()
	found, err := s.conn.Query(ctx, oldestRows, pg.Args{"floor": firstID, "limit": batchRows})
	if err != nil {
		return nil, 0, err
	}
	var id *int64
	var eventID *uuid.UUID
	var topic *string
	var createdAt *time.Time
	var key, payload []byte
	var headers map[string]string
	columns := []any{&xmin, &id, &eventID, &topic, &key, &headers, &payload, &createdAt}
	_, err = pgx.ForEachRow(found, columns, func() error {
		if id != nil {
			rows = append(rows, outboxRow{*id, *eventID, *topic, key, headers, payload, *createdAt})
		}
		key, payload, headers = nil, nil, nil // the next row must not reuse this row's memory
		return nil
	})
	return rows, xmin, err
}

var (
	// errUnacked is the result of a row without an acknowledgement. Kafka possibly has the row, or
	// receives it later.
	errUnacked = errors.New("not acknowledged")
	// errSilent ends the session of a leader whose rows Kafka does not acknowledge. Another replica
	// can possibly reach Kafka.
	errSilent = errors.New(
		"no acknowledgement: the brokers are unavailable, or fewer replicas are in sync than min.insync.replicas requires")
)

type ack struct {
	row int
	err error
}

// publishRows passes all rows to the Kafka client in order and waits for all results. faults[i] is
// the error of rows[i]. If the relay has possibly lost the lease, faults is nil, and no row may be
// deleted.
func (s *session) publishRows(ctx context.Context, rows []outboxRow) (faults []error, err error) {
	round, abandon := context.WithCancel(context.Background())
	defer abandon()
	faults = make([]error, len(rows))
	acks := make(chan ack, len(rows))
	for i := range rows {
		if err := s.verifyLease(s.relay.lease.trustTime); err != nil {
			return nil, err
		}
		faults[i] = errUnacked
		s.relay.produceRow(round, rows[i], func(err error) { acks <- ack{i, err} })
	}
	// After an error, the deferred call of abandon drops the rows that were not sent yet. Rows that
	// were sent cannot be recalled.
	if err := s.awaitAcks(ctx, acks, faults); errors.Is(err, errDeposed) {
		return nil, err
	} else if err != nil {
		return faults, err
	}
	return faults, nil
}

// awaitAcks waits for the results of all rows, and stores them in faults.
func (s *session) awaitAcks(ctx context.Context, acks <-chan ack, faults []error) error {
	ticks := time.NewTicker(s.relay.lease.renewInterval)
	defer ticks.Stop()
	var late <-chan time.Time
	done, lastAck := ctx.Done(), time.Now()
	for waiting := len(faults); waiting > 0; {
		select {
		case answer := <-acks:
			faults[answer.row] = answer.err
			waiting, lastAck = waiting-1, time.Now()
		case <-done:
			done, late = nil, time.After(shutdownGrace)
		case <-late:
			return fmt.Errorf("stopped before Kafka acknowledged %d rows, which are still in the outbox", waiting)
		case <-ticks.C:
			if err := s.verifyLease(s.relay.lease.renewInterval); err != nil {
				return err
			}
			if time.Since(lastAck) > s.relay.ackTimeout {
				return fmt.Errorf("%d rows have waited for Kafka for %s: %w", waiting, s.relay.ackTimeout, errSilent)
			}
		}
	}
	return nil
}

// produceRow passes a row to the Kafka client. If ctx is canceled before the client has sent the
// row, the row fails.
func (r *Relay) produceRow(ctx context.Context, w outboxRow, answered func(error)) {
	record, span := w.kafkaRecord(ctx)
	r.openRows.Add(1)
	r.client.Produce(record.Context, record, func(_ *kgo.Record, err error) {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
		r.openRows.Add(-1)
		answered(err)
	})
}

// kafkaRecord returns the Kafka record of a row. Its span continues the trace of the transaction
// that wrote the row.
func (w outboxRow) kafkaRecord(roundCtx context.Context) (*kgo.Record, trace.Span) {
	ctx := propagation.TraceContext{}.Extract(roundCtx, propagation.MapCarrier(w.Headers))
	span := trace.SpanFromContext(ctx)
	if span.SpanContext().IsValid() {
		ctx, span = otel.Tracer("ringfence.dev/libs/outbox").Start(ctx, "publish "+w.Topic,
			trace.WithSpanKind(trace.SpanKindProducer),
			trace.WithAttributes(
				attribute.String("messaging.system", "kafka"),
				attribute.String("messaging.destination.name", w.Topic),
				attribute.String("messaging.message.id", w.EventID.String()),
				attribute.Float64("outbox.waited_seconds", time.Since(w.CreatedAt).Seconds()),
			))
		propagation.TraceContext{}.Inject(ctx, propagation.MapCarrier(w.Headers))
	}
	record := &kgo.Record{Topic: w.Topic, Key: w.Key, Value: w.Payload, Context: ctx}
	for name, value := range w.Headers {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	return record, span
}

// deletableIDs returns the ids of the rows that can be deleted: in each topic, the rows before the
// first failed row. The later rows are published again, so that the events of the topic stay in
// order.
func deletableIDs(rows []outboxRow, faults []error) []int64 {
	ids := make([]int64, 0, len(rows))
	faulty := map[string]bool{}
	for i, row := range rows {
		if faults[i] != nil {
			faulty[row.Topic] = true
		}
		if !faulty[row.Topic] {
			ids = append(ids, row.ID)
		}
	}
	return ids
}

// createMissingTopics creates missing topics of the catalogue, so that a retry can succeed. It
// returns the errors of all rows, joined.
func (r *Relay) createMissingTopics(ctx context.Context, rows []outboxRow, faults []error) error {
	seen := map[string]error{}
	for i, row := range rows {
		if faults[i] != nil && seen[row.Topic] == nil {
			seen[row.Topic] = faults[i]
		}
	}
	var all []error
	for name, fault := range seen {
		all = append(all, fmt.Errorf("publish to %s: %w", name, fault))
		topic, known := kafka.Named(name)
		if !known || !errors.Is(fault, kerr.UnknownTopicOrPartition) {
			continue
		}
		creating, cancel := context.WithTimeout(ctx, statementTimeout)
		if err := kafka.EnsureTopics(creating, r.client, []kafka.Topic{topic}); err != nil {
			all = append(all, err)
		} else {
			slog.Warn("missing Kafka topic created", "topic", name)
		}
		cancel()
	}
	return errors.Join(all...)
}
