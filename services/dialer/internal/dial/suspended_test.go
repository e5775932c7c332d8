package dial_test

import (
	"errors"
	"fmt"
	"testing"

	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

// Queued requests of a suspended workspace are blocked while no trunk can take a call, and while the circuit of the
// carrier is open.
func TestRun_BlocksRequestsOfASuspendedWorkspaceWithoutATrunk(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		// trunkDown: there is no trunk. Otherwise the carrier fails, which opens its circuit.
		trunkDown bool
	}{
		{name: "no trunk is up", trunkDown: true},
		{name: "the circuit of the carrier is open"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.trunkDown = tt.trunkDown
			suspend := func() { d.exec("UPDATE workspaces SET status = 'suspended'") }
			over := &trunks{away: true}
			if tt.trunkDown {
				suspend()
			} else {
				over.says = []func(carrier.Originate) error{func(o carrier.Originate) error {
					suspend()
					return operatorUnsent(o)
				}}
			}
			d.run(over, func() error {
				state, _, _ := d.state()
				if got, want := dialqueue.State(state), dialqueue.Blocked; got != want {
					return fmt.Errorf("state = %q, want %q", got, want)
				}
				return nil
			})
		})
	}
}

// operatorUnsent is the refusal of a carrier that cannot be reached.
func operatorUnsent(o carrier.Originate) error {
	refused := &carrier.Refused{}
	if errors.As(unsent(o), &refused) {
		refused.OperatorFault = true
	}
	return refused
}
