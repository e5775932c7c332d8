package circuitbreaker_test

import (
	"testing"
	"time"

	"ringfence.dev/services/dialer/internal/circuitbreaker"
)

func TestBreaker_OpensAndClosesAfterASuccessfulTestCall(t *testing.T) {
	t.Parallel()
	now := time.Now()
	b := circuitbreaker.New(3, time.Second)
	state := func(want circuitbreaker.State) {
		t.Helper()
		if got := b.State(); got != want {
			t.Fatalf("state = %s, want %s", got, want)
		}
	}
	b.Failed(now, false)
	b.Failed(now, false)
	b.Succeeded() // resets the count of consecutive failures
	b.Failed(now, false)
	b.Failed(now, false)
	state(circuitbreaker.Closed)
	if !b.Failed(now, false) {
		t.Error("the third failure in a row did not open the circuit")
	}
	if _, ok := b.Allow(); ok {
		t.Error("Allow: ok = true, want false")
	} else if got := b.Rest(now); got != time.Second {
		t.Errorf("Allow: b.Rest(now) = %v, want %v", got, time.Second)
	}
	b.Succeeded() // this call began before the circuit opened
	state(circuitbreaker.Open)
	b.Try(now) // must have no effect before the rest time has passed
	state(circuitbreaker.Open)
	now = now.Add(time.Second)
	b.ExtendRest(now)
	if b.Rest(now) != time.Second {
		t.Errorf("rest after ExtendRest = %s, want 1s", b.Rest(now))
	}
	now = now.Add(time.Second)
	b.Try(now)
	state(circuitbreaker.HalfOpen)
	switch probe, ok := b.Allow(); {
	case !probe:
		t.Error("probe = false, want true")
	case !ok:
		t.Error("ok = false, want true")
	case !b.Probing():
		t.Error("b.Probing() = false, want true")
	}
	if _, ok := b.Allow(); ok {
		t.Error("a half-open circuit let a second probe through")
	}
	b.CancelTest()
	if _, ok := b.Allow(); !ok {
		t.Error("Allow after CancelTest: ok = false, want true")
	}
	for want := 2 * time.Second; want <= 64*time.Second; want *= 2 {
		if !b.Failed(now, false) {
			t.Error("a probe that failed did not open the circuit")
		}
		if got := b.Rest(now); got != min(want, 32*time.Second) {
			t.Errorf("rest = %s, want %s", got, want)
		}
		now = now.Add(b.Rest(now))
		b.Try(now)
		b.Allow()
	}
	if !b.Succeeded() {
		t.Error("a probe that succeeded did not close the circuit")
	}
	state(circuitbreaker.Closed)
	if b.Failed(now, true); b.State() != circuitbreaker.Open {
		t.Errorf("state after Failed with gone = %v, want %v", b.State(), circuitbreaker.Open)
	} else if got := b.Rest(now); got != time.Second {
		t.Errorf("rest after Failed with gone = %v, want %v", got, time.Second)
	}
}
