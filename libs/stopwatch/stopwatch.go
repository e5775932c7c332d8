// Package stopwatch measures for tests how long something takes on a machine that moves. One whose processors others have taken stands still now and then, for
// tenths of a second or for some seconds: nothing on it moved meanwhile, and what a program must do within a time had that much less. Where nothing stands still
// it measures what the clock does.
package stopwatch

import (
	"context"
	"sync"
	"testing"
	"time"
)

const (
	// beat is how often a watch looks whether it moves.
	beat = 50 * time.Millisecond
	// noticed is how late a beat is that tells of a standstill; what is shorter is the program's own slowness.
	noticed = 2 * beat
)

// Watch is one measurement.
type Watch struct {
	begun time.Time

	mu   sync.Mutex
	last time.Time // it moved
	gaps []gap
}

type gap struct{ from, to time.Time }

// Start begins to measure until ctx ends.
func Start(ctx context.Context) *Watch {
	now := time.Now()
	w := &Watch{begun: now, last: now}
	go func() {
		beats := time.NewTicker(beat)
		defer beats.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-beats.C:
				w.moved(time.Now())
			}
		}
	}()
	return w
}

func (w *Watch) moved(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.last) > beat+noticed {
		w.gaps = append(w.gaps, gap{w.last.Add(beat), now})
	}
	if now.After(w.last) {
		w.last = now
	}
}

// Took is how long it has been moving since it was started.
func (w *Watch) Took() time.Duration { return w.Moving(w.begun, time.Now()) }

// Moving is the time between two instants of the measurement but for that in which the machine stood still.
func (w *Watch) Moving(from, to time.Time) time.Duration { return to.Sub(from) - w.Still(from, to) }

// Still is for how long it stood still between two instants of the measurement.
func (w *Watch) Still(from, to time.Time) time.Duration {
	w.moved(time.Now()) // of a standstill that has just ended the beats may not know yet
	return w.still(from, to)
}

func (w *Watch) still(from, to time.Time) (sum time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.gaps {
		begun, ended := g.from, g.to
		if from.After(begun) {
			begun = from
		}
		if to.Before(ended) {
			ended = to
		}
		sum += max(0, ended.Sub(begun))
	}
	return sum
}

// Within ends when ctx does, or when the machine has been moving for that long.
func Within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	limited, cancel := context.WithCancel(ctx)
	w := Start(limited)
	go func() {
		beats := time.NewTicker(beat)
		defer beats.Stop()
		for w.Took() < limit {
			select {
			case <-limited.Done():
				return
			case <-beats.C:
			}
		}
		cancel()
	}()
	return limited, cancel
}

// tries is how often something is tried again whose only excuse is the machine.
const tries = 10

// Undisturbed tries until it goes well. What went wrong though the machine was moving is a fault at once.
func Undisturbed(t testing.TB, try func() error) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	for n := 1; ; n++ {
		w := Start(ctx)
		err := try()
		still := w.Still(w.begun, time.Now())
		switch {
		case err == nil || t.Failed():
			return
		case still == 0 || n == tries:
			t.Error(err)
			return
		}
		t.Logf("%v; the machine stood still for %s meanwhile, and it is tried again", err, still)
	}
}
