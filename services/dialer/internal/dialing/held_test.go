package dialing_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/request"
)

// TestHeld_NothingIsDialled: neither what is due when dialling is held up, nor what was claimed before and has no fence yet. Afterwards it is dialled.
func TestHeld_NothingIsDialled(t *testing.T) {
	t.Parallel()
	const long = 700 * time.Millisecond
	for _, tt := range []struct {
		name string
		// since is when the hold begins; zero: not yet.
		since func(d *desk, begun time.Time) time.Time
	}{
		{"from the beginning", func(_ *desk, begun time.Time) time.Time { return begun }},
		{"from when the gate is asked", func(d *desk, _ time.Time) time.Time {
			d.gate.mu.Lock()
			defer d.gate.mu.Unlock()
			return d.gate.asked
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d, begun := newDesk(t), time.Now()
			d.held = func() bool {
				since := tt.since(d, begun)
				return !since.IsZero() && time.Since(since) < long
			}
			var dialled time.Time
			d.dial(&trunks{says: []func(carrier.Originate) error{func(o carrier.Originate) error {
				dialled = time.Now()
				return takes(o)
			}}})
			if since := tt.since(d, begun); dialled.Sub(since) < long {
				t.Errorf("it was dialled %s after the hold began", dialled.Sub(since))
			}
			if got := d.calls(); !slices.Equal(got, []string{"initiated"}) {
				t.Errorf("calls = %q, want one that is initiated", got)
			}
		})
	}
}

// TestDialling_IsToldBeforeHeldIsAskedTheLastTime: who asks then what was dialled must not miss one that leaves for the carrier.
func TestDialling_IsToldBeforeHeldIsAskedTheLastTime(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var noted atomic.Pointer[uuid.UUID]
	var askedSince atomic.Bool
	d.dialling = func(r request.Request, callID uuid.UUID, from string) {
		if r.CallRequestID != d.request.CallRequestID {
			t.Errorf("r.CallRequestID = %v, want %v", r.CallRequestID, d.request.CallRequestID)
		} else if from == "" {
			t.Error("from is empty, want a value")
		}
		noted.Store(&callID)
		askedSince.Store(false)
	}
	d.held = func() bool {
		askedSince.Store(noted.Load() != nil)
		return false
	}
	d.dial(&trunks{says: []func(carrier.Originate) error{func(o carrier.Originate) error {
		if !o.Permitted(t.Context()) {
			t.Error("Permitted = false, want true")
		}
		switch id := noted.Load(); {
		case id == nil:
			t.Error("id = nil, want a value")
		case *id != o.CallID:
			t.Errorf("*id = %v, want %v", *id, o.CallID)
		case !askedSince.Load():
			t.Error("askedSince.Load() = false, want true")
		}
		return takes(o)
	}}})
}
