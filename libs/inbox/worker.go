package inbox

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/kafka"
)

const (
	minBackoff = 250 * time.Millisecond
	maxBackoff = 5 * time.Second
	// drainTimeout is how long a worker that must stop may continue its transaction. After
	// drainTimeout, the transaction is canceled. cancelTimeout limits the wait for the end of the
	// canceled transaction.
	drainTimeout  = 5 * time.Second
	cancelTimeout = 3 * time.Second
	txTimeout     = 60 * time.Second
	// defaultViolationTimeout is how long a record that violates a constraint is retried before it is
	// parked.
	defaultViolationTimeout = 15 * time.Minute
	// If pauseBatches batches wait in a worker's queue, its partition is paused and gets no further
	// batches. So the queue, which can contain maxBatches, never becomes full.
	pauseBatches, maxBatches = 4, 8
)

var errStopping = errors.New("the worker was stopped")

type fetched struct {
	// generation is the number of seeks that the worker had made when the records were fetched.
	generation int
	records    []*kgo.Record
}

// worker applies the records of one partition in order while the partition is assigned to this
// process.
type worker struct {
	group     *group
	client    *kgo.Client
	partition partition
	work      chan fetched
	// storedPositions receives the stored position of the partition. Only an idle worker reads it.
	storedPositions chan position
	stopping        chan struct{} // closed when the worker must not start another transaction
	ctx             context.Context
	cancel          context.CancelFunc
	done            chan struct{}
	lastError       string
	// position is the current position. startOffsets sets it before the first fetch, and after that
	// only worker.run accesses it.
	position position

	mu      sync.Mutex
	paused  bool
	started bool
	// fetchNext is the lowest offset that the next fetched record can have. Lower offsets have already
	// been fetched.
	fetchNext int64
	// seekTo is the offset at which the poll loop must continue, or nil. Each seek increases
	// generation. Records that were fetched with an earlier generation are dropped.
	seekTo     *int64
	generation int
}

func newWorker(g *group, client *kgo.Client, p partition) *worker {
	ctx, cancel := context.WithCancel(context.Background())
	return &worker{
		group: g, client: client, partition: p, ctx: ctx, cancel: cancel,
		work: make(chan fetched, maxBatches), storedPositions: make(chan position),
		stopping: make(chan struct{}), done: make(chan struct{}),
	}
}

func (w *worker) start(p position) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.position, w.fetchNext, w.started = p, p.nextOffset, true
}

// comparePosition gives the stored position to an idle worker, which compares it with its own
// position. A busy worker detects a changed position in its next transaction.
func (w *worker) comparePosition(stored position) {
	w.mu.Lock()
	started := w.started
	w.mu.Unlock()
	if !started {
		return
	}
	select {
	case w.storedPositions <- stored:
	default:
	}
}

func (w *worker) run() {
	defer close(w.done)
	for {
		select {
		case <-w.stopping:
			return
		case next := <-w.work:
			// If several channels are ready, select chooses one at random. So the worker must check again
			// whether it must stop.
			if w.stopped() || !w.apply(w.withWaiting(next)) {
				return
			}
			w.resume()
		case stored := <-w.storedPositions:
			if !w.correctPosition(stored) {
				return
			}
		}
	}
}

// queueRecords queues fetched records. It pauses the partition if too many batches wait, and drops
// records that were fetched before the last seek.
func (w *worker) queueRecords(records []*kgo.Record) {
	w.mu.Lock()
	if w.seekTo != nil {
		w.mu.Unlock()
		return
	}
	batch := fetched{w.generation, records}
	w.fetchNext = records[len(records)-1].Offset + 1
	w.mu.Unlock()
	select {
	case w.work <- batch:
	case <-w.stopping:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.work) >= pauseBatches && !w.paused {
		w.paused = true
		w.client.PauseFetchPartitions(w.partition.asMap())
	}
}

func (w *worker) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.work) == 0 && w.paused {
		w.paused = false
		w.client.ResumeFetchPartitions(w.partition.asMap())
	}
}

// withWaiting adds queued records to next, up to the size of a transaction. It omits records that
// were fetched before the last seek.
func (w *worker) withWaiting(next fetched) []*kgo.Record {
	records := w.currentRecords(next)
	for len(records) < txRecords {
		select {
		case next := <-w.work:
			records = append(slices.Clip(records), w.currentRecords(next)...)
		default:
			return records
		}
	}
	return records
}

// currentRecords returns the records of a batch, or none if the batch was fetched before the last
// seek.
func (w *worker) currentRecords(batch fetched) []*kgo.Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	if batch.generation != w.generation {
		return nil
	}
	return batch.records
}

func (w *worker) stopped() bool {
	select {
	case <-w.stopping:
		return true
	default:
		return w.ctx.Err() != nil
	}
}

// apply applies a batch in transactions of at most txRecords records. It returns false if the
// worker must stop. If the stored position has changed, apply drops the remaining records and
// seeks.
func (w *worker) apply(records []*kgo.Record) bool {
	if len(records) == 0 {
		return true
	}
	started, c := time.Now(), w.group.consumer
	for part := range slices.Chunk(records, txRecords) {
		c.backlog.Waits(w.partition.topic, w.partition.number, part[0].Timestamp)
		err := w.applyPart(part)
		if errors.Is(err, errPositionChanged) {
			return w.reposition()
		}
		if err != nil {
			return false
		}
	}
	c.backlog.Waits(w.partition.topic, w.partition.number, time.Time{})
	c.metrics.batchSeconds.WithLabelValues(w.partition.topic).Observe(time.Since(started).Seconds())
	return true
}

// applyPart applies records in one transaction. If this fails, it applies them one by one. It
// returns errStopping, errPositionChanged or nil.
func (w *worker) applyPart(wire []*kgo.Record) error {
	if w.stopped() {
		return errStopping
	}
	records := make([]*incoming, len(wire))
	for i := range wire {
		records[i] = &incoming{}
		records[i].Record, records[i].parkReason = kafka.Read(wire[i])
	}
	err := w.applyShared(records)
	if err == nil {
		w.client.MarkCommitRecords(wire[len(wire)-1])
		return nil
	}
	if errors.Is(err, errPositionChanged) {
		return err
	}
	for i := range records {
		if err := w.applySingle(records[i]); err != nil {
			return err
		}
		w.client.MarkCommitRecords(wire[i])
	}
	return nil
}

// applySingle retries a record until it is applied, skipped or parked. It returns errStopping,
// errPositionChanged or nil.
func (w *worker) applySingle(rec *incoming) error {
	wait, tries := minBackoff, 0
	refused := violationSeries{consumer: w.group.consumer}
	for {
		if w.stopped() {
			return errStopping
		}
		err := w.applyAlone(rec)
		if err == nil {
			if tries > 0 {
				slog.Info("record applied after retries", "consumer", w.group.consumer.name, "topic", rec.Topic,
					"event_id", rec.EventID, "tries", tries+1)
			}
			w.lastError = ""
			return nil
		}
		if errors.Is(err, errStopping) || errors.Is(err, errPositionChanged) {
			return err
		}
		if rec.parkReason == nil && refused.mustPark(err, time.Now()) {
			rec.parkReason = kafka.Parkf("the database refused it for %s and took other records meanwhile: %w",
				w.group.consumer.violationTimeout, err)
			continue
		}
		tries++
		w.logRetry(rec, err)
		w.group.consumer.metrics.retries.WithLabelValues(rec.Topic).Inc()
		if isMissingPartition(err) {
			// createDays creates a missing partition of inbox_events. It does not help if a table of the
			// service lacks a partition.
			_ = w.group.consumer.createDays(w.ctx)
		}
		if !w.pauseFor(wait) {
			return errStopping
		}
		wait = min(2*wait, maxBackoff)
	}
}

// pauseFor waits for the duration d. It returns false if the worker must stop.
func (w *worker) pauseFor(d time.Duration) bool {
	select {
	case <-w.stopping:
		return false
	case <-w.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// correctPosition is called if the stored position differs from the worker's position: another
// process has applied records, or the database was restored. stored can be older than the worker's
// last transaction, so correctPosition reads the position again. It returns false if the worker
// must stop.
func (w *worker) correctPosition(stored position) bool {
	if stored == w.position {
		return true
	}
	next := w.position.nextOffset
	if !w.reloadPosition() {
		return false
	}
	if w.position.nextOffset != next {
		w.requestSeek(w.position.nextOffset)
	}
	return true
}

// reposition reads the stored position and makes the poll loop continue there. It returns false if
// the worker must stop.
func (w *worker) reposition() bool {
	if !w.reloadPosition() {
		return false
	}
	w.requestSeek(w.position.nextOffset)
	return true
}

// reloadPosition reads the stored position. It retries until it succeeds, and returns false if the
// worker must stop.
func (w *worker) reloadPosition() bool {
	c := w.group.consumer
	for {
		ctx, cancel := context.WithTimeout(w.ctx, txTimeout)
		stored, err := c.reloadPosition(ctx, w.partition, w.position)
		cancel()
		if err == nil {
			w.position = stored
			return true
		}
		if errors.Is(err, errTopicRecreated) {
			w.group.rejoinTopic(w.partition.topic) // stops this worker
		}
		if text := err.Error(); text != w.lastError && w.ctx.Err() == nil {
			w.lastError = text
			slog.Warn("inbox position could not be read", "consumer", c.name, "error", err)
		}
		if !w.pauseFor(maxBackoff) {
			return false
		}
	}
}

// requestSeek makes the poll loop continue at the offset.
func (w *worker) requestSeek(offset int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.generation++
	w.seekTo = &offset
}

// violationSeries decides when a record that repeatedly violates a constraint is parked.
type violationSeries struct {
	consumer *Consumer
	// firstViolation is the time of the first violation in the current series, or zero outside of a
	// series. Any other error ends the series.
	firstViolation time.Time
	// appliedBefore is the number of records that the consumer had applied when the current series
	// began.
	appliedBefore int64
}

// mustPark reports whether the record must be parked. It returns true if the record has violated a
// constraint for violationTimeout, and other records of the consumer were applied in this time. If
// none was applied, the cause is probably not the record.
func (r *violationSeries) mustPark(err error, now time.Time) bool {
	switch {
	case !isRefused(err):
		r.firstViolation = time.Time{}
		return false
	case r.firstViolation.IsZero():
		r.firstViolation, r.appliedBefore = now, r.consumer.appliedCount.Load()
		return false
	}
	return now.Sub(r.firstViolation) >= r.consumer.violationTimeout && r.consumer.appliedCount.Load() > r.appliedBefore
}

func (w *worker) chunk(ctx context.Context, records []*incoming) *chunk {
	return &chunk{
		ctx: ctx, partition: w.partition, records: records,
		startPosition: w.position, endOffset: records[len(records)-1].Offset + 1, done: make(chan error, 1),
	}
}

// applyShared applies records in one transaction, which can also contain records of other
// partitions.
func (w *worker) applyShared(records []*incoming) error {
	ctx, cancel := context.WithTimeout(w.ctx, txTimeout)
	defer cancel()
	ch := w.chunk(ctx, records)
	w.group.consumer.batcher.addChunk(ch)
	var err error
	select {
	case err = <-ch.done:
	case <-w.stopping:
		if ch.claimed.CompareAndSwap(false, true) {
			return errStopping // the batcher has not claimed the chunk, so it is withdrawn
		}
		err = <-ch.done // the end of ctx cancels the transaction
	}
	if err == nil {
		w.position = ch.newPosition
	}
	return err
}

func (w *worker) applyAlone(rec *incoming) error {
	ctx, cancel := context.WithTimeout(w.ctx, txTimeout)
	defer cancel()
	select {
	case w.group.consumer.slots <- struct{}{}:
		defer func() { <-w.group.consumer.slots }()
	case <-w.stopping:
		return errStopping
	}
	ch := w.chunk(ctx, []*incoming{rec})
	if err := w.group.consumer.apply(ctx, ch); err != nil {
		return err
	}
	w.position = ch.newPosition
	return nil
}

// logRetry logs the error of a record, unless it is the same as the last logged error.
func (w *worker) logRetry(rec *incoming, err error) {
	if text := err.Error(); text != w.lastError && w.ctx.Err() == nil {
		w.lastError = text
		slog.Warn("record could not be applied, it is tried again", "consumer", w.group.consumer.name, "topic", rec.Topic,
			"partition", rec.Partition, "offset", rec.Offset, "event_id", rec.EventID, "event_type", rec.Type, "error", err)
	}
}
