package carrier_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/carrier"
)

func TestAddIfNew_RecognizesTheLatest65536IDs(t *testing.T) {
	t.Parallel()
	const latest = 1 << 16
	asked, ids := &carrier.OriginatedCalls{}, make([]uuid.UUID, 3*latest+1)
	for i := range ids {
		ids[i] = uuid.New()
		if !asked.AddIfNew(ids[i]) {
			t.Fatalf("First(call %d) = false, want true", i)
		}
	}
	for i, id := range ids[len(ids)-latest:] {
		if asked.AddIfNew(id) {
			t.Fatalf("First(call %d of the latest %d) = true, want false", i, latest)
		}
	}
	if !asked.AddIfNew(ids[0]) { // an id that is no longer stored counts as new
		t.Errorf("First of the oldest of %d calls = false, want true", len(ids))
	}
}

func TestOriginatedCalls_ConcurrentAddsOfAnIDReturnTrueOnce(t *testing.T) {
	t.Parallel()
	asked, id, first := &carrier.OriginatedCalls{}, uuid.New(), atomic.Int32{}
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			if asked.AddIfNew(id) {
				first.Add(1)
			}
		})
	}
	all.Wait()
	if first.Load() != 1 {
		t.Errorf("calls of First that returned true = %d, want 1", first.Load())
	}
}
