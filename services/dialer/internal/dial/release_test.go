package dial_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
)

// operatorFault simulates a trunk that rejects the operator's credentials.
func operatorFault(refusedBy string) func(carrier.Originate) error {
	return func(carrier.Originate) error {
		return &carrier.Refused{
			Cause:         callstate.ProviderAuthFailed,
			OperatorFault: true,
			RefusedBy:     refusedBy,
			Err:           errors.New("401"),
		}
	}
}

func TestRefused_RequestIsQueuedAgainAfterAnOperatorFault(t *testing.T) {
	t.Parallel()
	takenOver := func(d *fixture) func(carrier.Originate) error {
		return func(o carrier.Originate) error {
			d.exec(`UPDATE calls SET owner = gen_random_uuid(), ending = 'recovery' WHERE call_id = $1`, o.CallID)
			return operatorFault("")(o)
		}
	}
	tests := []struct {
		name    string
		answers func(d *fixture) []func(carrier.Originate) error
		calls   []string
		state   string
		inUse   int
		events  int
	}{
		{
			name: "the only trunk refuses the operator's account",
			answers: func(*fixture) []func(carrier.Originate) error {
				return []func(carrier.Originate) error{operatorFault("")}
			},
			calls: []string{"void provider_auth_failed"}, state: "queued", inUse: 0, events: 2,
		},
		{
			name: "the trunk accepts the second dial",
			answers: func(*fixture) []func(carrier.Originate) error {
				return []func(carrier.Originate) error{operatorFault(""), accept}
			},
			calls: []string{"void provider_auth_failed", "initiated"}, state: "dialing", inUse: 1, events: 4,
		},
		{
			name: "no INVITE to the second trunk is sent",
			answers: func(*fixture) []func(carrier.Originate) error {
				return []func(carrier.Originate) error{operatorFault("one"), notSent}
			},
			calls: []string{"void", "void provider_auth_failed"}, state: "queued", inUse: 0, events: 2,
		},
		{
			name: "the second trunk rejects the called number",
			answers: func(*fixture) []func(carrier.Originate) error {
				return []func(carrier.Originate) error{operatorFault("one"), refuse(callstate.UnallocatedNumber, "")}
			},
			calls: []string{"void", "failed unallocated_number"}, state: "ended", inUse: 0, events: 3,
		},
		{
			name:    "recovery has taken over the call",
			answers: func(d *fixture) []func(carrier.Originate) error { return []func(carrier.Originate) error{takenOver(d)} },
			calls:   []string{"fenced  recovery"}, state: "dialing", inUse: 1, events: 1,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			d.dialAll(&fakeCarrier{answers: tt.answers(d)})
			if got := d.calls(); !slices.Equal(got, tt.calls) {
				t.Errorf("calls = %q, want %q", got, tt.calls)
			}
			state, inUse, events := d.state()
			if state != tt.state {
				t.Errorf("state = %q, want %q", state, tt.state)
			}
			if inUse != tt.inUse {
				t.Errorf("inUse = %d, want %d", inUse, tt.inUse)
			}
			if events != tt.events {
				t.Errorf("events in the outbox = %d, want %d", events, tt.events)
			}
		})
	}
}

// The limit of five attempts applies only to a workspace's own model. If the operator's model
// cannot be reached, the request must stay in the queue.
func TestRefused_RequestEndsAfterFiveFailuresOfAWorkspacesModel(t *testing.T) {
	t.Parallel()
	unreachable := func(carrier.Originate) error {
		return &carrier.Refused{
			Cause:         callstate.AgentError,
			NotSent:       true,
			OperatorFault: true,
			Err:           errors.New("refused"),
		}
	}
	const released = "void agent_error"
	five := slices.Repeat([]func(carrier.Originate) error{unreachable}, 5)
	tests := []struct {
		name     string
		settings string
		answers  []func(carrier.Originate) error
		calls    []string
		state    string
	}{
		{
			name:     "five attempts to reach the workspace's model",
			settings: `{"kind":"openai_realtime","base_url":"wss://model.example"}`,
			answers:  five,
			calls:    append(slices.Repeat([]string{released}, 4), "failed agent_error"), state: "ended",
		},
		{
			name:     "four refusals by a trunk, then one attempt to reach the workspace's model",
			settings: `{"kind":"openai_realtime","base_url":"wss://model.example"}`,
			answers:  append(slices.Repeat([]func(carrier.Originate) error{operatorFault("")}, 4), unreachable),
			calls:    append(slices.Repeat([]string{"void provider_auth_failed"}, 4), released), state: "queued",
		},
		{
			name: "five attempts to reach the operator's model", settings: `{"kind":"openai_realtime"}`, answers: five,
			calls: slices.Repeat([]string{released}, 5), state: "queued",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			d.exec("UPDATE agents SET settings = $1", tt.settings)
			over := &fakeCarrier{answers: tt.answers}
			d.ownCircuits = true
			d.runUntil(over, func() error {
				d.exec("UPDATE dial_queue SET look_at = now() WHERE state = 'queued' AND claimed_by IS NULL")
				if got, want := len(over.originates()), len(over.answers); got < want {
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
