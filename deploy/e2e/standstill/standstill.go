// Package standstill tells for how long this machine stood still, as one does whose processors others have taken: nothing on it moved meanwhile, and what a program
// must have done within a time had that much less. It knows nothing of the programs.
package standstill

import (
	"sync"
	"time"
)

// noticed is the shortest standstill that counts; the watch looks that often and twice.
const noticed = 200 * time.Millisecond

// Watch looks whether it moves, from Begin to Close.
type Watch struct {
	end  chan struct{}
	over chan struct{}

	mu   sync.Mutex
	last time.Time // it moved
	gaps []gap
}

type gap struct{ from, to time.Time }

// Begin begins a watch.
func Begin() *Watch {
	w := &Watch{end: make(chan struct{}), over: make(chan struct{}), last: time.Now()}
	go func() {
		defer close(w.over)
		tick := time.NewTicker(noticed / 2)
		defer tick.Stop()
		for {
			select {
			case <-w.end:
				return
			case <-tick.C:
				w.moved(time.Now())
			}
		}
	}()
	return w
}

// Close ends the watch.
func (w *Watch) Close() {
	close(w.end)
	<-w.over
}

func (w *Watch) moved(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.last) > noticed {
		w.gaps = append(w.gaps, gap{w.last, now})
	}
	w.last = later(w.last, now)
}

// Within is for how long it stood still between two instants.
func (w *Watch) Within(from, to time.Time) (still time.Duration) {
	w.moved(time.Now()) // of one that has just ended the watch may not know yet
	return w.within(from, to)
}

func (w *Watch) within(from, to time.Time) (still time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.gaps {
		if begun, ended := later(g.from, from), earlier(g.to, to); ended.After(begun) {
			still += ended.Sub(begun)
		}
	}
	return still
}

// Moving is the time between two instants but for that in which the machine stood still.
func (w *Watch) Moving(from, to time.Time) time.Duration {
	return to.Sub(from) - w.Within(from, to)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
