package testkit

import (
	"fmt"
	"testing"
	"time"
)

// Timeout ends a test that would otherwise hang. A condition that becomes true later than expected,
// but within Timeout, does not fail the test.
const Timeout = 2 * time.Minute

const pause = 5 * time.Millisecond

// Until waits until the condition is true. description names the condition, for example "the outbox
// is empty". It is part of the failure message if the test hangs.
func Until(t testing.TB, description string, condition func() bool) {
	t.Helper()
	poll(t, func() error {
		if !condition() {
			return fmt.Errorf("it is still not true that %s", description)
		}
		return nil
	})
}

// NoError calls condition until it returns nil. A test that hangs fails with the last error.
func NoError(t testing.TB, condition func() error) {
	t.Helper()
	poll(t, condition)
}

func poll(t testing.TB, condition func() error) {
	t.Helper()
	timeout := time.NewTimer(Timeout)
	defer timeout.Stop()
	ticks := time.NewTicker(pause)
	defer ticks.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-timeout.C:
			t.Fatalf("after %s %v", Timeout, err)
			return
		case <-ticks.C:
		}
	}
}
