package dial_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
)

// The carrier prepares the dial for so long that the result of the dial-time check expires before
// the INVITE.
func TestPermit_ChecksTheGatesAgainIfTheINVITEIsDelayed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		meanwhile func(d *fixture)
		permitted bool
		calls     []string
		state     string
	}{
		{
			name: "the gates permit the call again", meanwhile: func(*fixture) {}, permitted: true, calls: []string{"initiated"},
			state: "dialing",
		},
		{
			name: "the gates refuse the call now", meanwhile: func(d *fixture) { d.gate.close() }, calls: []string{"void"},
			state: "blocked",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			asked := 0
			slow := func(o carrier.Originate) error {
				before := d.gate.count()
				tt.meanwhile(d)
				permitted := true
				testkit.Until(t, "the gates are asked again", func() bool {
					permitted = o.Permitted(context.Background())
					asked = d.gate.count() - before
					return asked > 0
				})
				if permitted != tt.permitted {
					t.Errorf("Permitted = %t, want %t", permitted, tt.permitted)
				}
				if !permitted {
					return fmt.Errorf("originate: %w", carrier.ErrNotPermitted)
				}
				return nil
			}
			d.dialAll(&fakeCarrier{answers: []func(carrier.Originate) error{slow}})
			if asked != 1 {
				t.Errorf("gate checks during the originate = %d, want 1", asked)
			}
			if got := d.calls(); !slices.Equal(got, tt.calls) {
				t.Errorf("calls = %q, want %q", got, tt.calls)
			}
			if state, _, _ := d.state(); state != tt.state {
				t.Errorf("state = %q, want %q", state, tt.state)
			}
		})
	}
}

// A failover of the database happens after the fence was committed. The request must be queued
// again, and its intent must be withdrawn.
func TestPermit_SendsNoINVITEBeforeTheDatabaseIsReconciled(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	var pending atomic.Bool
	d.reconciled = func() bool { return !pending.Load() }
	prepares := func(o carrier.Originate) error {
		pending.Store(true)
		defer pending.Store(false)
		if o.Permitted(context.Background()) {
			t.Error("Permitted before the database is reconciled = true, want false")
		}
		return fmt.Errorf("originate: %w", carrier.ErrNotPermitted)
	}
	d.dialAll(&fakeCarrier{answers: []func(carrier.Originate) error{prepares, accept}})
	if got, want := d.calls(), []string{"void", "initiated"}; !slices.Equal(got, want) {
		t.Errorf("calls = %q, want %q", got, want)
	}
	if got, want := d.intents.publishedIntents(), []string{"intended", "withdrawn", "intended"}; !slices.Equal(got, want) {
		t.Errorf("published = %q, want %q", got, want)
	}
}

// The trunk requests authentication after the first INVITE, and the gates refuse the call before
// the second INVITE. The dialer must not try another trunk.
func TestPermit_RefusalAfterTheFirstINVITEEndsTheCall(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]string{"no other trunk": "", "another trunk": uuid.NewString()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			over := &fakeCarrier{answers: []func(carrier.Originate) error{func(o carrier.Originate) error {
				d.gate.close()
				testkit.Until(t, "the gates' answer expires", func() bool { return !o.Permitted(context.Background()) })
				return &carrier.Refused{
					Cause:     callstate.NormalTemporaryFailure,
					RefusedBy: by,
					Err:       carrier.ErrNotPermitted,
				}
			}}}
			d.dialAll(over)
			if got, want := d.calls(), []string{"failed normal_temporary_failure"}; !slices.Equal(got, want) {
				t.Errorf("calls = %q, want %q", got, want)
			}
			if state, _, _ := d.state(); state != "ended" {
				t.Errorf("state = %q, want ended", state)
			}
			if got := len(over.originates()); got != 1 {
				t.Errorf("originates = %d, want 1", got)
			}
		})
	}
}

func (g *fakeGate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

func (g *fakeGate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.checks
}
