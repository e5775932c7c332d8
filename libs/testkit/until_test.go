package testkit

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestUntil_ReturnsWhenTheConditionIsTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		Until(t, "a second has passed", func() bool { return time.Since(begun) >= time.Second })
		if got := time.Since(begun); got != time.Second {
			t.Errorf("Until returned after %s, want 1s", got)
		}
	})
}

// failingTB is a testing.TB that records the message of Fatalf instead of failing the running test.
// Fatalf ends the goroutine, as in a real test.
type failingTB struct {
	testing.TB
	message string
}

func (f *failingTB) Helper() {}

func (f *failingTB) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestUntil_FailsTheTestAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failingTB{TB: t}
		go Until(f, "the outbox is empty", func() bool { return false })
		time.Sleep(Timeout)
		synctest.Wait()
		if want := "after 2m0s it is still not true that the outbox is empty"; f.message != want {
			t.Errorf("message = %q, want %q", f.message, want)
		}
	})
}
