package inbox

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// chunk is some consecutive records of one partition, to be applied in one transaction.
type chunk struct {
	ctx       context.Context
	partition partition
	records   []*incoming
	// before is the position from which the records were read; after is the offset behind the last one.
	before position
	after  int64
	// moved is the new position once done has received nil.
	moved position
	// started is set by the batcher when it takes the chunk, or by the worker when it withdraws it.
	started atomic.Bool
	done    chan error // has room for one error
}

// enoughRecords is how many records must wait, for each running transaction of their topic, before
// another transaction is started beside them. Slow handlers then soon run in parallel, and the records of
// fast ones share commits.
const enoughRecords = 16

// longestRest bounds the pause after a transaction.
const longestRest = 20 * time.Millisecond

// batcher puts chunks of several partitions of a topic into one transaction. While a transaction runs,
// and for as long after it, chunks wait and are applied together in the next one. The busier a topic is,
// the fewer commits a record costs. A record that arrives later does not wait.
type batcher struct {
	consumer *Consumer

	mu      sync.Mutex
	waiting map[string][]*chunk // by topic
	running map[string]int      // transactions by topic
}

// add queues a chunk. Its done channel receives the result.
func (b *batcher) add(ch *chunk) {
	topic := ch.partition.topic
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting[topic] = append(b.waiting[topic], ch)
	records := 0
	for _, waiting := range b.waiting[topic] {
		records += len(waiting.records)
	}
	if records > enoughRecords*b.running[topic] {
		b.running[topic]++
		go b.run(topic)
	}
}

// run applies waiting chunks until there are none.
func (b *batcher) run(topic string) {
	for {
		b.consumer.slots <- struct{}{}
		began, chunks := time.Now(), b.take(topic)
		if len(chunks) > 0 {
			b.apply(chunks)
		}
		<-b.consumer.slots
		if len(chunks) == 0 {
			return
		}
		time.Sleep(min(time.Since(began), longestRest))
	}
}

// take removes the oldest chunks, as many as one transaction may have, and returns them ordered by
// partition. Transactions that lock rows per partition therefore lock in the same order.
func (b *batcher) take(topic string) []*chunk {
	b.mu.Lock()
	defer b.mu.Unlock()
	var taken []*chunk
	queue, records := b.waiting[topic], 0
	for len(queue) > 0 && (records == 0 || records+len(queue[0].records) <= txRecords) {
		if ch := queue[0]; ch.started.CompareAndSwap(false, true) {
			taken, records = append(taken, ch), records+len(ch.records)
		}
		queue = queue[1:]
	}
	b.waiting[topic] = queue
	if len(taken) == 0 {
		b.running[topic]--
	}
	slices.SortFunc(taken, func(a, b *chunk) int { return cmp.Compare(a.partition.number, b.partition.number) })
	return taken
}

// apply applies chunks in one transaction. If it fails, each chunk is applied in its own transaction, so
// that an error in one partition does not affect the others.
func (b *batcher) apply(chunks []*chunk) {
	if len(chunks) > 1 && b.applyTogether(chunks) == nil {
		for _, ch := range chunks {
			ch.done <- nil
		}
		return
	}
	for _, ch := range chunks {
		ch.done <- b.consumer.apply(ch.ctx, ch)
	}
}

func (b *batcher) applyTogether(chunks []*chunk) error {
	ctx, cancel := context.WithTimeout(context.Background(), txTimeout)
	defer cancel()
	for _, ch := range chunks {
		if ch.ctx.Err() != nil {
			return ch.ctx.Err()
		}
		context.AfterFunc(ch.ctx, cancel) // a lost partition ends the transaction; the others try again
	}
	return b.consumer.apply(ctx, chunks...)
}
