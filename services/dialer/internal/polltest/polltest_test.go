package polltest_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"ringfence.dev/services/dialer/internal/polltest"
)

func TestUntil_ReturnsWhenTheConditionIsMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		polltest.Until(t, func() error {
			if time.Since(begun) < time.Second {
				return errors.New("too early")
			}
			return nil
		})
		if got := time.Since(begun); got != time.Second {
			t.Errorf("Until returned after %v, want 1s", got)
		}
	})
}

func TestTrue_ReturnsWhenTheConditionIsMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		polltest.True(t, "a second has passed", func() bool { return time.Since(begun) >= time.Second })
		if got := time.Since(begun); got != time.Second {
			t.Errorf("True returned after %v, want 1s", got)
		}
	})
}
