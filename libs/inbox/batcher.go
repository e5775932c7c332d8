package inbox

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// chunk contains consecutive records of one partition that are applied in one transaction.
type chunk struct {
	ctx       context.Context
	partition partition
	records   []*incoming
	// startPosition is the position from which the records were read. endOffset is the offset that
	// follows the last record.
	startPosition position
	endOffset     int64
	// newPosition is the position after the transaction. It is valid after done has received nil.
	newPosition position
	// The batcher sets started when it takes the chunk. A worker that stops sets started to
	// withdraw the chunk.
	started atomic.Bool
	done    chan error // the result of the transaction
}

// enoughRecords determines when transactions of a topic run concurrently. While n transactions run,
// another one starts if more than n times enoughRecords records wait. Slow handlers then run in
// parallel, and records of fast handlers share commits.
const enoughRecords = 16

// maxPause is the maximum pause between the end of a transaction and the next one.
const maxPause = 20 * time.Millisecond

// batcher applies chunks of several partitions of a topic in one transaction, so a busy topic needs
// few commits. While a transaction of the topic runs, new chunks wait. After the transaction they
// wait for as long as the transaction took, at most maxPause. Then they are applied together. A
// chunk of an idle topic does not wait.
type batcher struct {
	consumer *Consumer

	mu      sync.Mutex
	waiting map[string][]*chunk // the waiting chunks by topic
	running map[string]int      // the number of running transactions by topic
}

// addChunk queues a chunk. The result is sent to the channel done of the chunk.
func (b *batcher) addChunk(ch *chunk) {
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

// run applies waiting chunks until no chunk waits.
func (b *batcher) run(topic string) {
	for {
		b.consumer.slots <- struct{}{}
		began, chunks := time.Now(), b.takeChunks(topic)
		if len(chunks) > 0 {
			b.apply(chunks)
		}
		<-b.consumer.slots
		if len(chunks) == 0 {
			return
		}
		time.Sleep(min(time.Since(began), maxPause))
	}
}

// takeChunks removes the oldest chunks, up to the size of a transaction, and returns them ordered
// by partition. All transactions then lock the rows of partitions in the same order and do not
// deadlock.
func (b *batcher) takeChunks(topic string) []*chunk {
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

// apply applies chunks in one transaction. If the transaction fails, each chunk is applied in its
// own transaction. An error in one partition then does not affect the other partitions.
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
		// If one of the partitions is assigned to another process, the ctx of its chunk ends. The
		// transaction is then canceled, and the chunks of the other partitions are retried.
		context.AfterFunc(ch.ctx, cancel)
	}
	return b.consumer.apply(ctx, chunks...)
}
