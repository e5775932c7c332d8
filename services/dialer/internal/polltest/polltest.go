// Package polltest lets a test wait for a condition.
package polltest

import (
	"errors"
	"testing"
	"time"
)

const (
	interval = 5 * time.Millisecond
	// limit ends a test that hangs.
	limit = 2 * time.Minute
)

// Until calls condition until it returns nil. If that does not happen, the test fails with the last
// error. Until must be called in the goroutine of the test.
func Until(t testing.TB, condition func() error) {
	t.Helper()
	ticker, timeout := time.NewTicker(interval), time.After(limit)
	defer ticker.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-timeout:
			t.Fatalf("condition not met within %v: %v", limit, err)
		}
	}
}

// True calls condition until it returns true. what describes the condition.
func True(t testing.TB, what string, condition func() bool) {
	t.Helper()
	Until(t, func() error {
		if !condition() {
			return errors.New(what)
		}
		return nil
	})
}
