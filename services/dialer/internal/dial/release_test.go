package dial_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
)

// operatorFault refuses because of the trunk's credentials.
func operatorFault(by string) func(carrier.Originate) error {
	return func(carrier.Originate) error {
		return &carrier.Refused{Cause: callstate.ProviderAuthFailed, OperatorFault: true, RefusedBy: by, Err: errors.New("401")}
	}
}

func TestRefused_OperatorFaultQueuesTheRequestAgain(t *testing.T) {
	t.Parallel()
	takenOver := func(d *desk) func(carrier.Originate) error {
		return func(o carrier.Originate) error {
			d.exec(`UPDATE calls SET owner = gen_random_uuid(), ending = 'recovery' WHERE call_id = $1`, o.CallID)
			return operatorFault("")(o)
		}
	}
	tests := []struct {
		name  string
		says  func(d *desk) []func(carrier.Originate) error
		calls []string
		state string
		inUse int
		facts int
	}{
		{
			name:  "the only trunk refuses",
			says:  func(*desk) []func(carrier.Originate) error { return []func(carrier.Originate) error{operatorFault("")} },
			calls: []string{"void provider_auth_failed"}, state: "queued", inUse: 0, facts: 2,
		},
		{
			name: "the next dial has a new fence",
			says: func(*desk) []func(carrier.Originate) error {
				return []func(carrier.Originate) error{operatorFault(""), takes}
			},
			calls: []string{"void provider_auth_failed", "initiated"}, state: "dialing", inUse: 1, facts: 4,
		},
		{
			name: "no other trunk can be asked",
			says: func(*desk) []func(carrier.Originate) error {
				return []func(carrier.Originate) error{operatorFault("one"), unsent}
			},
			calls: []string{"void", "void provider_auth_failed"}, state: "queued", inUse: 0, facts: 2,
		},
		{
			name: "the other trunk rejects the number",
			says: func(*desk) []func(carrier.Originate) error {
				return []func(carrier.Originate) error{operatorFault("one"), refuses(callstate.UnallocatedNumber, "")}
			},
			calls: []string{"void", "failed unallocated_number"}, state: "ended", inUse: 0, facts: 3,
		},
		{
			name:  "recovery has taken the call over",
			says:  func(d *desk) []func(carrier.Originate) error { return []func(carrier.Originate) error{takenOver(d)} },
			calls: []string{"fenced  recovery"}, state: "dialing", inUse: 1, facts: 1,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.dial(&trunks{says: tt.says(d)})
			if got := d.calls(); !slices.Equal(got, tt.calls) {
				t.Errorf("calls = %q, want %q", got, tt.calls)
			}
			state, inUse, facts := d.state()
			if state != tt.state {
				t.Errorf("state = %q, want %q", state, tt.state)
			}
			if inUse != tt.inUse {
				t.Errorf("inUse = %d, want %d", inUse, tt.inUse)
			}
			if facts != tt.facts {
				t.Errorf("events in the outbox = %d, want %d", facts, tt.facts)
			}
		})
	}
}

// A model of the workspace that cannot be reached ends the request after five attempts. The operator's model keeps it
// queued.
func TestRefused_UnreachableModel(t *testing.T) {
	t.Parallel()
	unreachable := func(carrier.Originate) error {
		return &carrier.Refused{Cause: callstate.AgentError, NotSent: true, OperatorFault: true, Err: errors.New("refused")}
	}
	const released = "void agent_error"
	five := slices.Repeat([]func(carrier.Originate) error{unreachable}, 5)
	tests := []struct {
		name     string
		settings string
		says     []func(carrier.Originate) error
		calls    []string
		state    string
	}{
		{
			name: "the workspace's", settings: `{"kind":"openai_realtime","base_url":"wss://model.example"}`,
			says:  five,
			calls: append(slices.Repeat([]string{released}, 4), "failed agent_error"), state: "ended",
		},
		{
			name:     "the workspace's, after four refusals of a trunk",
			settings: `{"kind":"openai_realtime","base_url":"wss://model.example"}`,
			says:     append(slices.Repeat([]func(carrier.Originate) error{operatorFault("")}, 4), unreachable),
			calls:    append(slices.Repeat([]string{"void provider_auth_failed"}, 4), released), state: "queued",
		},
		{
			name: "the operator's", settings: `{"kind":"openai_realtime"}`, says: five,
			calls: slices.Repeat([]string{released}, 5), state: "queued",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.exec("UPDATE agents SET settings = $1", tt.settings)
			over := &trunks{says: tt.says}
			d.ownCircuits = true
			d.run(over, func() error {
				d.exec("UPDATE dial_queue SET look_at = now() WHERE state = 'queued' AND claimed_by IS NULL")
				if got, want := len(over.asked()), len(over.says); got < want {
					return fmt.Errorf("originates = %d, want %d", got, want)
				}
				return nil
			})
			if got := d.calls(); !slices.Equal(got, tt.calls) {
				t.Errorf("calls = %q, want %q", got, tt.calls)
			}
			if state, _, _ := d.state(); state != tt.state {
				t.Errorf("state = %q, want %q", state, tt.state)
			}
		})
	}
}
