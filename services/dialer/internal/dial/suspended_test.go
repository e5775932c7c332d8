package dial_test

import (
	"errors"
	"fmt"
	"testing"

	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

func TestRun_RequestOfASuspendedWorkspaceIsBlockedEvenIfNoTrunkIsUp(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		// If trunkDown is true, the carrier has no trunk. Otherwise calls fail until the carrier's
		// circuit opens.
		trunkDown bool
	}{
		{name: "no trunk can take a call", trunkDown: true},
		{name: "the circuit of the carrier is open"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			d.trunkDown = tt.trunkDown
			suspend := func() { d.exec("UPDATE workspaces SET status = 'suspended'") }
			over := &fakeCarrier{unreachable: true}
			if tt.trunkDown {
				suspend()
			} else {
				over.answers = []func(carrier.Originate) error{func(o carrier.Originate) error {
					suspend()
					return operatorNotSent(o)
				}}
			}
			d.runUntil(over, func() error {
				state, _, _ := d.state()
				if got, want := dialqueue.State(state), dialqueue.Blocked; got != want {
					return fmt.Errorf("state = %q, want %q", got, want)
				}
				return nil
			})
		})
	}
}

func operatorNotSent(o carrier.Originate) error {
	refused := &carrier.Refused{}
	if errors.As(notSent(o), &refused) {
		refused.OperatorFault = true
	}
	return refused
}
