package callstate_test

import (
	"testing"

	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/callstate"
)

// The service `calls` needs the outcome in the event `ended`, because the summary can follow later.
func TestEnd_EndedEventContainsTheOutcome(t *testing.T) {
	t.Parallel()
	judged := func(outcome string) *agent.Judgement {
		return &agent.Judgement{Outcome: outcome, Reached: agent.ReachedHuman}
	}
	tests := []struct {
		name   string
		words  string
		cause  callstate.Cause
		judged *agent.Judgement
		want   string
	}{
		{
			name:   "judgement opted_out",
			cause:  callstate.NormalClearing,
			judged: judged(agent.OutcomeOptedOut),
			want:   agent.OutcomeOptedOut,
		},
		{
			name:  "judgement callback_requested",
			cause: callstate.NormalClearing, judged: judged(agent.OutcomeCallbackRequested),
			want: agent.OutcomeCallbackRequested,
		},
		{
			name: "judgement no_conversation", cause: callstate.SilenceTimeout, judged: judged(agent.OutcomeNoConversation),
			want: agent.OutcomeNoConversation,
		},
		{name: "judgement unknown, which the summary decides later",
			cause: callstate.NormalClearing, judged: judged(agent.OutcomeUnknown)},
		{
			name:  "judgement opted_out of a failed call",
			cause: callstate.NetworkOutOfOrder, judged: judged(agent.OutcomeOptedOut),
			want: agent.OutcomeOptedOut,
		},
		{
			name:  "opt-out in the words to the scripted agent",
			words: "Never call me again.",
			cause: callstate.NormalClearing,
			want:  agent.OutcomeOptedOut,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := outbound()
			c.Initiate(at(0))
			c.Answer(at(1))
			if test.words != "" {
				c.Hear(test.words, at(2))
			}
			c.End(callstate.End{At: at(3), Cause: test.cause, Judged: test.judged, Zone: at(0).Location()})
			for _, f := range c.Facts() {
				if ended := f.Event.GetEnded(); ended != nil && ended.GetOutcome() != test.want {
					t.Errorf("outcome of ended = %q, want %q", ended.GetOutcome(), test.want)
				}
			}
		})
	}
}
