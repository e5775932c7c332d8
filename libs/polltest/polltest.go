// Package polltest lets tests wait for a condition that nothing else announces.
package polltest

import (
	"testing"
	"time"
)

const (
	// limit ends a test that would otherwise hang. It is no expectation of how soon a condition is true.
	limit = 2 * time.Minute
	pause = 5 * time.Millisecond
)

// Until waits until the condition is true. what describes the condition for the message of a test that
// hangs, for example "the outbox is empty".
func Until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	until(t, what, condition, limit)
}

func until(t testing.TB, what string, condition func() bool, limit time.Duration) {
	t.Helper()
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	ticks := time.NewTicker(pause)
	defer ticks.Stop()
	for !condition() {
		select {
		case <-timeout.C:
			t.Fatalf("after %s it is still not true that %s", limit, what)
		case <-ticks.C:
		}
	}
}
