package agent_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/agent"
)

type opener struct {
	err  error
	take time.Duration
}

func (o *opener) Open(ctx context.Context, _ agent.Spec) (agent.Session, error) {
	select {
	case <-time.After(o.take):
		return nil, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestCircuits_AreIndependentForEachAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		over := &opener{err: errors.New("connection refused")}
		circuits := agent.NewCircuits(2, time.Second)
		watched := circuits.Watch(over)
		spec := agent.Spec{WorkspaceID: uuid.New(), Settings: agent.Settings{Kind: agent.Realtime}}
		operators, ok := agent.AddressOf(spec.WorkspaceID, agent.Realtime, "", "")
		if !ok {
			t.Fatal("an agent of a model has no address")
		}
		own, _ := agent.AddressOf(spec.WorkspaceID, agent.Realtime, "wss://model.example", "")
		rests := func(a agent.Address, want time.Duration) {
			t.Helper()
			done, got := circuits.Allow(a)
			done()
			if got != want {
				t.Errorf("rest of %+v = %v, want %v", a, got, want)
			}
		}
		fail := func(ctx context.Context) { _, _ = watched.Open(ctx, spec) }
		fail(t.Context())
		rests(operators, 0)
		fail(t.Context())
		rests(operators, time.Second)
		rests(own, 0)
		time.Sleep(time.Second)
		done, wait := circuits.Allow(operators)
		if wait != 0 {
			t.Errorf("wait of the call that tests the address = %v, want 0", wait)
		}
		rests(operators, 500*time.Millisecond)
		over.err = nil
		fail(t.Context())
		done()
		rests(operators, 0)
	})
}

func TestCircuits_CanceledConnectionIsAFailureOnlyIfItWasSlow(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		after time.Duration
		want  time.Duration
	}{
		{name: "call ends after 1 s: no failure", after: time.Second, want: 0},
		{name: "call ends after 4 s: failure", after: 4 * time.Second, want: time.Second},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			circuits := agent.NewCircuits(1, time.Second)
			watched := circuits.Watch(&opener{take: time.Minute})
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(tt.after, cancel)
			_, _ = watched.Open(ctx, agent.Spec{Settings: agent.Settings{Kind: agent.Live}})
			a, _ := agent.AddressOf(uuid.Nil, agent.Live, "", "")
			if _, got := circuits.Allow(a); got != tt.want {
				t.Errorf("%s: rest = %v, want %v", tt.name, got, tt.want)
			}
		})
	}
}

func TestAddressOf_ReturnsNoneForAScriptedAgent(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"", agent.Scripted} {
		if _, ok := agent.AddressOf(uuid.New(), kind, "", ""); ok {
			t.Errorf("kind %q has an address", kind)
		}
	}
}
