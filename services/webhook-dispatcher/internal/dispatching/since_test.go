package dispatching_test

import (
	"sync"
	"testing"
	"time"

	"ringfence.dev/libs/stopwatch"
)

// since tells how long after an instant the last request arrived.
type since struct {
	mu    sync.Mutex
	watch *stopwatch.Watch
	after time.Duration
}

func (s *since) begin(t *testing.T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch = stopwatch.Start(t.Context())
}

func (s *since) arrived() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watch != nil {
		s.after = s.watch.Took()
	}
}

func (s *since) last() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.after
}
