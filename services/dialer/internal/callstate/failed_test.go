package callstate_test

import (
	"strings"
	"testing"

	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/callstate"
)

func TestEnd_FailureAfterTheAnswerKeepsTheOutcome(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		cause   callstate.Cause
		judged  agent.Judgement
		outcome string
		optOut  bool
	}{
		{
			name: "media timeout", cause: callstate.MediaTimeout,
			judged:  agent.Judgement{Outcome: agent.OutcomeInterested, Reached: agent.ReachedHuman},
			outcome: agent.OutcomeInterested,
		},
		{
			name: "media timeout after an opt-out", cause: callstate.MediaTimeout,
			judged:  agent.Judgement{Outcome: agent.OutcomeOptedOut, Reached: agent.ReachedHuman},
			outcome: agent.OutcomeOptedOut, optOut: true,
		},
		{
			name: "the agent failed after the answer", cause: callstate.AgentError,
			judged: agent.Judgement{Reached: agent.ReachedError},
		},
		{
			name: "the agent failed after an opt-out", cause: callstate.AgentError,
			judged:  agent.Judgement{Outcome: agent.OutcomeOptedOut, Reached: agent.ReachedError},
			outcome: agent.OutcomeOptedOut, optOut: true,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := outbound()
			c.To = "+14155550101"
			c.Initiate(at(0))
			c.Answer(at(1))
			c.Note(agent.Turn{Role: agent.RolePerson, Text: "Do not call me again.", At: at(2)})
			c.End(callstate.End{At: at(3), Cause: test.cause, ByUs: true, Judged: &test.judged})
			if c.Status != callstate.Failed {
				t.Errorf("status = %q, want %q", c.Status, callstate.Failed)
			}
			if c.Outcome != test.outcome {
				t.Errorf("outcome = %q, want %q", c.Outcome, test.outcome)
			}
			if c.Disposition != test.judged.Reached {
				t.Errorf("disposition = %q, want %q", c.Disposition, test.judged.Reached)
			}
			if got := c.OptOut() != nil; got != test.optOut {
				t.Errorf("opt-out = %v, want %v", got, test.optOut)
			}
			if c.Analysing {
				t.Error("Analysing = true, want false: a failed call is not summarised")
			}
			facts := c.Facts()
			last := facts[len(facts)-1].Event
			if last.GetAnalysed() == nil {
				t.Fatalf("last fact = %v, want analysed", last)
			}
			if got := last.GetAnalysed().GetOutcome(); got != test.outcome {
				t.Errorf("outcome in the analysis = %q, want %q", got, test.outcome)
			}
			if got := string(last.GetAnalysed().GetTranscriptJson()); !strings.Contains(got, "Do not call me again.") {
				t.Errorf("transcript = %s, want the words of the person", got)
			}
			if got := last.GetCall().GetBillableSeconds(); got != 0 {
				t.Errorf("billable seconds = %d, want 0", got)
			}
		})
	}
}
