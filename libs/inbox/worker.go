package inbox

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/kafka"
)

const (
	firstBackoff = 250 * time.Millisecond
	lastBackoff  = 5 * time.Second
	// drainTime is what a worker gets to finish its transaction; then it is cancelled, and lostTime is waited for that.
	drainTime = 5 * time.Second
	lostTime  = 3 * time.Second
	// tryTime bounds one transaction, so that a database which went silent is a fault like others.
	tryTime = 60 * time.Second
	// refusedTime is how long a record is tried again that the database refuses because of a constraint.
	refusedTime = 15 * time.Minute
	// behind is how many batches may wait before the partition is paused. A paused partition brings none, so the mailbox
	// is never full.
	behind, mailbox = 4, 8
)

var errStopping = errors.New("the partition is given up")

// worker applies one partition's records in order, as long as the partition is ours.
type worker struct {
	group     *group
	client    *kgo.Client
	partition partition
	work      chan []*kgo.Record // what one fetch brought each
	mu        sync.Mutex         // orders pausing and resuming
	paused    bool
	stopping  chan struct{} // closed: begin nothing more
	ctx       context.Context
	cancel    context.CancelFunc
	done      chan struct{}
	lastFault string
	next      int64 // the offset after what was handed over; the poll loop's
}

func newWorker(g *group, client *kgo.Client, p partition) *worker {
	ctx, cancel := context.WithCancel(context.Background())
	return &worker{
		group: g, client: client, partition: p, ctx: ctx, cancel: cancel,
		work: make(chan []*kgo.Record, mailbox), stopping: make(chan struct{}), done: make(chan struct{}),
	}
}

// before is the offset that the partition's next record has at least: after the last one handed over, or, for the first, where the
// group left off.
func (w *worker) before(client *kgo.Client) int64 {
	if w.next > 0 {
		return w.next
	}
	return client.CommittedOffsets()[w.partition.topic][w.partition.number].Offset
}

func (w *worker) run() {
	defer close(w.done)
	for {
		select {
		case <-w.stopping:
			return
		case records := <-w.work:
			// Both may have been ready. A batch that was given up is not marked, so nothing behind it may be applied and marked either:
			// the group would go on after it.
			if w.stopped() || !w.settle(w.withWaiting(records)) {
				return
			}
			w.resume()
		}
	}
}

// take puts a batch into the mailbox and pauses the partition when too many wait.
func (w *worker) take(records []*kgo.Record) {
	select {
	case w.work <- records:
	case <-w.stopping:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.work) >= behind && !w.paused {
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

// withWaiting adds what else is in the mailbox, as far as one transaction goes.
func (w *worker) withWaiting(records []*kgo.Record) []*kgo.Record {
	for len(records) < txRecords {
		select {
		case next := <-w.work:
			records = append(slices.Clip(records), next...)
		default:
			return records
		}
	}
	return records
}

func (w *worker) stopped() bool {
	select {
	case <-w.stopping:
		return true
	default:
		return w.ctx.Err() != nil
	}
}

// settle brings a batch to its end: a part of it in one transaction, or, when that fails, record by record. False: the worker has to stop
// before.
func (w *worker) settle(records []*kgo.Record) bool {
	started, c := time.Now(), w.group.consumer
	for part := range slices.Chunk(records, txRecords) {
		c.backlog.Waits(w.partition.topic, w.partition.number, part[0].Timestamp)
		if !w.settlePart(part) {
			return false // unmarked: whoever has the partition next begins here
		}
	}
	c.backlog.Waits(w.partition.topic, w.partition.number, time.Time{})
	c.metrics.batchSeconds.WithLabelValues(w.partition.topic).Observe(time.Since(started).Seconds())
	return true
}

// settlePart says false when the worker has to stop before the last record is settled.
func (w *worker) settlePart(records []*kgo.Record) bool {
	if w.stopped() {
		return false
	}
	all := make([]delivery, len(records))
	for i, wire := range records {
		all[i].Record, all[i].fault = kafka.Read(wire)
	}
	if err := w.try(all); err == nil {
		w.client.MarkCommitRecords(records[len(records)-1])
		return true
	}
	for i := range all {
		if !w.settleOne(all[i]) {
			return false
		}
		w.client.MarkCommitRecords(records[i])
	}
	return true
}

// settleOne tries one record until it is applied, skipped or parked. It returns false if the worker has
// to stop first.
func (w *worker) settleOne(d delivery) bool {
	wait, tries := firstBackoff, 0
	refused := refusal{consumer: w.group.consumer}
	for {
		if w.stopped() {
			return false
		}
		err := w.alone(d)
		if err == nil {
			if tries > 0 {
				slog.Info("consumer goes on", "consumer", w.group.consumer.name, "topic", d.Topic, "event_id", d.EventID, "tries", tries+1)
			}
			w.lastFault = ""
			return true
		}
		if kafka.IsPark(err) && d.fault == nil {
			d.fault = err
			continue
		}
		if d.fault == nil && refused.isFinal(err, time.Now()) {
			d.fault = kafka.Parkf("the database refused it for %s and took other records meanwhile: %w",
				w.group.consumer.refusedTime, err)
			continue
		}
		tries++
		w.tell(d, err)
		w.group.consumer.metrics.retries.WithLabelValues(d.Topic).Inc()
		select {
		case <-w.stopping:
			return false
		case <-w.ctx.Done():
			return false
		case <-time.After(wait):
		}
		wait = min(2*wait, lastBackoff)
	}
}

// refusal decides when a record that the database refuses again and again is parked.
type refusal struct {
	consumer *Consumer
	// since is the time of the first refusal without another error in between. It is zero if there is none.
	since time.Time
	// applied is the number of records that the consumer had applied by then.
	applied int64
}

// isFinal reports whether the record is to be parked: the database refused it for refusedTime and took
// other records of the consumer meanwhile. If it takes no other record either, the cause is probably
// not in the record.
func (r *refusal) isFinal(err error, now time.Time) bool {
	switch {
	case !refuses(err):
		r.since = time.Time{}
		return false
	case r.since.IsZero():
		r.since, r.applied = now, r.consumer.applied.Load()
		return false
	}
	return now.Sub(r.since) >= r.consumer.refusedTime && r.consumer.applied.Load() > r.applied
}

// try settles records at the desk, together with what other partitions of the topic bring.
func (w *worker) try(all []delivery) error {
	ctx, cancel := context.WithTimeout(w.ctx, tryTime)
	defer cancel()
	bundle := &bundle{ctx: ctx, all: all, settled: make(chan error, 1)}
	w.group.consumer.desk.bring(bundle)
	select {
	case err := <-bundle.settled:
		return err
	case <-w.stopping:
		if bundle.begun.CompareAndSwap(false, true) {
			return errStopping // nobody had begun it, and now nobody will
		}
		return <-bundle.settled // ctx ends it
	}
}

// alone settles one record in a transaction of its own.
func (w *worker) alone(d delivery) error {
	ctx, cancel := context.WithTimeout(w.ctx, tryTime)
	defer cancel()
	select {
	case w.group.consumer.slots <- struct{}{}:
		defer func() { <-w.group.consumer.slots }()
	case <-w.stopping:
		return errStopping
	}
	return w.group.consumer.apply(ctx, []delivery{d})
}

// tell logs a fault once, and again when it changes.
func (w *worker) tell(d delivery, err error) {
	if fault := err.Error(); fault != w.lastFault && w.ctx.Err() == nil {
		w.lastFault = fault
		slog.Warn("consumer cannot apply a record and tries again", "consumer", w.group.consumer.name, "topic", d.Topic,
			"partition", d.Partition, "offset", d.Offset, "event_id", d.EventID, "event_type", d.Type, "err", err)
	}
}

// bundle is what one worker brings to the desk: records of one partition, in their order.
type bundle struct {
	ctx     context.Context
	all     []delivery
	begun   atomic.Bool // whoever sets it decides: the desk begins it, or its worker takes it back
	settled chan error  // one place
}

// enough is how many records wait, for each transaction of their topic that is under way, before another one begins beside them: few
// enough that a slow handler soon has company, and so many that quick ones share their commits.
const enough = 16

// desk puts the bundles of several partitions of a topic into one transaction. A topic's next transaction takes what was brought
// during the one before: the busier the topic, the fewer commits a record, and a lone record waits for nobody.
type desk struct {
	consumer *Consumer

	mu      sync.Mutex
	waiting map[string][]*bundle
	serving map[string]int
}

func (d *desk) bring(b *bundle) {
	topic := b.all[0].Topic
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting[topic] = append(d.waiting[topic], b)
	records := 0
	for _, w := range d.waiting[topic] {
		records += len(w.all)
	}
	if records > enough*d.serving[topic] {
		d.serving[topic]++
		go d.serve(topic)
	}
}

// serve settles what waits until nothing does.
func (d *desk) serve(topic string) {
	for {
		d.consumer.slots <- struct{}{}
		taken := d.take(topic)
		if len(taken) > 0 {
			d.settle(taken)
		}
		<-d.consumer.slots
		if len(taken) == 0 {
			return
		}
	}
}

// take gives the oldest bundles, as many as one transaction may have, in the order of their partitions: handlers that lock by partition
// lock in that order everywhere. None ends the serving.
func (d *desk) take(topic string) []*bundle {
	d.mu.Lock()
	defer d.mu.Unlock()
	var taken []*bundle
	queue, records := d.waiting[topic], 0
	for len(queue) > 0 && (records == 0 || records+len(queue[0].all) <= txRecords) {
		if b := queue[0]; b.begun.CompareAndSwap(false, true) {
			taken, records = append(taken, b), records+len(b.all)
		}
		queue = queue[1:]
	}
	d.waiting[topic] = queue
	if len(taken) == 0 {
		d.serving[topic]--
	}
	slices.SortFunc(taken, func(a, b *bundle) int { return cmp.Compare(a.all[0].Partition, b.all[0].Partition) })
	return taken
}

// settle applies bundles together, and each for itself when that fails: one partition's fault is not the others'.
func (d *desk) settle(taken []*bundle) {
	if len(taken) > 1 && d.together(taken) == nil {
		for _, b := range taken {
			b.settled <- nil
		}
		return
	}
	for _, b := range taken {
		b.settled <- d.consumer.apply(b.ctx, b.all)
	}
}

func (d *desk) together(taken []*bundle) error {
	ctx, cancel := context.WithTimeout(context.Background(), tryTime)
	defer cancel()
	var all []delivery
	for _, b := range taken {
		if b.ctx.Err() != nil {
			return b.ctx.Err()
		}
		context.AfterFunc(b.ctx, cancel) // a partition that is lost ends the transaction; the others try again
		all = append(all, b.all...)
	}
	return d.consumer.apply(ctx, all)
}
