package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// fillSlots prevents the batcher from starting transactions until release is called.
func (b *applyBench) fillSlots() (release func()) {
	for range cap(b.slots) {
		b.slots <- struct{}{}
	}
	return func() {
		for range cap(b.slots) {
			<-b.slots
		}
	}
}

func (b *applyBench) chunkOf(ctx context.Context, number int32) *chunk {
	ch := b.chunk(number, b.records(fmt.Sprintf("p%d", number))...)
	ch.ctx = ctx
	return ch
}

func TestBatcher_WaitingPartitionsShareATransaction(t *testing.T) {
	t.Parallel()
	b := newApplyBench(t, nil)
	release := b.fillSlots()
	var chunks []*chunk
	for _, number := range []int32{7, 2, 5} {
		chunks = append(chunks, b.chunkOf(t.Context(), number))
		b.batcher.addChunk(chunks[len(chunks)-1])
	}
	release()
	for _, ch := range chunks {
		if err := <-ch.done; err != nil {
			t.Fatal(err)
		}
	}
	b.wantCalls("p2 p5 p7")
	for _, ch := range chunks {
		b.wantPosition(ch.partition.number, 1)
	}
}

func TestBatcher_ErrorInOnePartitionDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	b := newApplyBench(t, func(values []string) (Outcome, error) {
		if slices.Contains(values, "p5") {
			return Outcome{}, away
		}
		return Outcome{Results: make([]Result, len(values))}, nil
	})
	release := b.fillSlots()
	lostCtx, lose := context.WithCancel(t.Context())
	lost, failing, healthy := b.chunkOf(lostCtx, 1), b.chunkOf(t.Context(), 5), b.chunkOf(t.Context(), 2)
	lose()
	for _, ch := range []*chunk{lost, failing, healthy} {
		b.batcher.addChunk(ch)
	}
	release()
	if err := <-lost.done; !errors.Is(err, context.Canceled) {
		t.Errorf("lost partition: %v, want %v", err, context.Canceled)
	}
	if err := <-failing.done; !errors.Is(err, away) {
		t.Errorf("failing partition: %v, want %v", err, away)
	}
	if err := <-healthy.done; err != nil {
		t.Errorf("healthy partition: %v", err)
	}
	b.wantEffects("p2")
}

func TestBatcher_WithdrawnChunkIsNotApplied(t *testing.T) {
	t.Parallel()
	b := newApplyBench(t, nil)
	release := b.fillSlots()
	withdrawn, kept := b.chunkOf(t.Context(), 1), b.chunkOf(t.Context(), 2)
	b.batcher.addChunk(withdrawn)
	b.batcher.addChunk(kept)
	withdrawn.claimed.Store(true) // a worker that stops withdraws its chunk in this way
	release()
	if err := <-kept.done; err != nil {
		t.Fatal(err)
	}
	b.wantEffects("p2")
}
