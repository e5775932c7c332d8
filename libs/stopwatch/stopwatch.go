// Package stopwatch measures for tests how long something takes where the machine runs. A process that was not let run for some seconds, because the
// machine is busy or stood still, is not slow: such a time counts as two beats, whatever the clock says. Where nothing stands still it measures what the
// clock does.
package stopwatch

import (
	"context"
	"sync/atomic"
	"time"
)

// beat is how often it looks at the clock, and how exact it is.
const beat = 20 * time.Millisecond

// Watch is one measurement.
type Watch struct{ ran atomic.Int64 }

// Start begins to measure until ctx ends.
func Start(ctx context.Context) *Watch {
	w := &Watch{}
	go w.run(ctx)
	return w
}

func (w *Watch) run(ctx context.Context) {
	beats := time.NewTicker(beat)
	defer beats.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-beats.C:
		}
		now := time.Now()
		w.ran.Add(int64(counted(now.Sub(last))))
		last = now
	}
}

// counted is what a time between two beats counts for.
func counted(between time.Duration) time.Duration { return min(between, 2*beat) }

// Took is how long it has been running.
func (w *Watch) Took() time.Duration { return time.Duration(w.ran.Load()) }

// Within ends when ctx does, or when the process has been running for that long.
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
