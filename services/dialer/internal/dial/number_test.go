package dial_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
)

// While the request waits for a caller number, it must not use capacity.
func TestRun_RequestWithoutACallerNumberIsPutBack(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	var chosen atomic.Int64
	d.from = func(context.Context, string, []string) (number, over string, err error) {
		chosen.Add(1)
		return "", "", errors.New("no trunk with a number has a free channel")
	}
	over := &fakeCarrier{}
	d.runUntil(over, func() error {
		if chosen.Load() == 0 {
			return errors.New("no number was asked for")
		}
		return nil
	})
	state, inUse, _ := d.state()
	if want := "queued"; state != want {
		t.Errorf("state = %q, want %q", state, want)
	}
	if inUse != 0 {
		t.Errorf("inUse = %d, want 0", inUse)
	}
	if got := len(over.originates()); got != 0 {
		t.Errorf("originates = %d, want 0", got)
	}
}

// TrunkNumber is true if the caller number is one of the trunk's caller_ids, and false if it is the
// agent's number.
func TestRun_TrunkNumberIsTrueOnlyForACallerIDOfTheTrunk(t *testing.T) {
	t.Parallel()
	const ofAgent, ofTrunk = "+14155550100", "+14155550101"
	tests := []struct {
		name   string
		agent  string
		chosen []string
		want   []bool
	}{
		{name: "the agent has no number, so the trunk's number is shown", chosen: []string{ofTrunk}, want: []bool{true}},
		{name: "the first trunk shows the agent's number", agent: ofAgent, chosen: []string{ofAgent}, want: []bool{false}},
		{
			name:   "only the second trunk shows its own number",
			agent:  ofAgent,
			chosen: []string{ofAgent, ofTrunk},
			want:   []bool{false, true},
		},
		{
			name:   "only the second trunk shows the agent's number",
			agent:  ofAgent,
			chosen: []string{ofTrunk, ofAgent},
			want:   []bool{true, false},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			d.exec("UPDATE agents SET from_e164 = $1", tt.agent)
			d.from = func(_ context.Context, _ string, without []string) (number, over string, err error) {
				return tt.chosen[len(without)], "", nil
			}
			over := &fakeCarrier{answers: []func(carrier.Originate) error{accept}}
			if len(tt.chosen) > 1 {
				over.answers = []func(carrier.Originate) error{refuse(callstate.NormalTemporaryFailure, "one"), accept}
			}
			d.dialAll(over)
			var got []bool
			for _, o := range over.originates() {
				got = append(got, o.TrunkNumber)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("number of a trunk in each originate = %v, want %v", got, tt.want)
			}
		})
	}
}
