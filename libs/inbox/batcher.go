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
	// newPosition is the position after the transaction. It is valid after nil was received from done.
	newPosition position
	// claimed is set by the batcher when it takes the chunk, or by a worker that must stop and
	// withdraws the chunk.
	claimed atomic.Bool
	done    chan error // receives the result of the transaction
}

// enoughRecords determines how many transactions of a topic run concurrently. While n transactions
// run, the next one starts only if more than n*enoughRecords records wait. So slow handlers run in
// parallel, and the records of fast handlers share a commit.
const enoughRecords = 16

// maxPause is the maximum pause between the end of a transaction and the next one.
const maxPause = 20 * time.Millisecond

// batcher applies chunks of several partitions of a topic in one transaction, so that a busy topic
// needs few commits. Chunks that arrive during a transaction usually wait for the next one.
type batcher struct {
	consumer *Consumer

	mu      sync.Mutex
	waiting map[string][]*chunk // waiting chunks, by topic
	running map[string]int      // number of running transactions, by topic
}

// addChunk queues a chunk. The channel done of the chunk receives the result.
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

// takeChunks removes the oldest chunks, up to the size of a transaction, and returns them sorted by
// partition. So all transactions lock the rows of partitions in the same order and do not deadlock.
func (b *batcher) takeChunks(topic string) []*chunk {
	b.mu.Lock()
	defer b.mu.Unlock()
	var taken []*chunk
	queue, records := b.waiting[topic], 0
	for len(queue) > 0 && (records == 0 || records+len(queue[0].records) <= txRecords) {
		if ch := queue[0]; ch.claimed.CompareAndSwap(false, true) {
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

// apply applies chunks in one transaction. If it fails, each chunk is applied in its own
// transaction, so that an error in one partition does not affect the others.
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
		// The ctx of a chunk ends if its partition is assigned to another process. The transaction is
		// then canceled, and the chunks of the other partitions are tried again.
		context.AfterFunc(ch.ctx, cancel)
	}
	return b.consumer.apply(ctx, chunks...)
}
