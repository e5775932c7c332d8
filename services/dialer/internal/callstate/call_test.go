package callstate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"ringfence.dev/libs/phone"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/callstate"
)

var start = time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

func outbound() *callstate.Call {
	id := uuid.Must(uuid.NewV7())
	return &callstate.Call{
		CallID:        uuid.Must(uuid.NewV7()),
		CallRequestID: &id,
		Direction:     callstate.Outbound,
		Status:        callstate.Fenced,
	}
}

func lastEvent(c *callstate.Call) *eventv1.Call { return c.Facts()[len(c.Facts())-1].Event.GetCall() }

func TestZone_FallsBackToTheNumbersZoneAndThenToUTC(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ named, number, want string }{
		{"Asia/Tokyo", "+18005551234", "Asia/Tokyo"}, {"Asia/Tokyo", "+14155550101", "Asia/Tokyo"}, {"", "+14155550101",
			"America/Los_Angeles"},
		{"Mars/Olympus", "+14155550101", "America/Los_Angeles"}, {"Mars/Olympus", "+18005551234", "UTC"}, {"", "anonymous",
			"UTC"},
	} {
		if got := callstate.Zone(test.named, phone.Number(test.number)).String(); got != test.want {
			t.Errorf("Zone(%q, %s) = %s, want %s", test.named, test.number, got, test.want)
		}
	}
}

// The rows repeat the causes in docs/reference/api/calls.md#hangup-causes-and-call-status.
func TestEnd_CauseDeterminesStatusAndErrorCode(t *testing.T) {
	tests := []struct {
		cause                          callstate.Cause
		answered                       bool
		status, disposition, errorCode string
	}{
		{callstate.NormalClearing, true, "completed", "abandoned", ""},
		{callstate.SilenceTimeout, true, "completed", "abandoned", ""},
		{callstate.NetworkOutOfOrder, true, "failed", "unreachable", "provider_unavailable"},
		{callstate.UserBusy, false, "busy", "busy", ""},
		{callstate.NoAnswer, false, "no_answer", "no_answer", ""},
		{callstate.NoUserResponse, false, "no_answer", "no_answer", ""},
		{callstate.SubscriberAbsent, false, "no_answer", "unreachable", ""},
		{callstate.UnallocatedNumber, false, "failed", "invalid_number", "invalid_number"},
		{callstate.InvalidNumberFormat, false, "failed", "invalid_number", "invalid_number"},
		{callstate.NumberChanged, false, "failed", "invalid_number", "invalid_number"},
		{callstate.NoRouteDestination, false, "failed", "unreachable", "invalid_number"},
		{callstate.CallRejected, false, "failed", "rejected", "provider_rejected"},
		{callstate.FacilityRejected, false, "failed", "unreachable", "provider_rejected"},
		{callstate.IncompatibleDest, false, "failed", "unreachable", "provider_rejected"},
		{callstate.ProviderAuthFailed, false, "failed", "unreachable", "provider_rejected"},
		{callstate.SpamBlocked, false, "failed", "rejected", "provider_rejected"},
		{callstate.Unspecified, false, "failed", "error", "internal_error"},
		{callstate.OriginatorCancel, false, "canceled", "abandoned", "provider_unavailable"},
		{callstate.NormalTemporaryFailure, false, "failed", "unreachable", "provider_unavailable"},
		{"unknown_cause", false, "failed", "unreachable", "provider_unavailable"},
	}
	for _, tt := range tests {
		t.Run(string(tt.cause), func(t *testing.T) {
			c := outbound()
			c.Initiate(at(0))
			if tt.answered {
				c.Answer(at(1))
			}
			if !c.End(callstate.End{At: at(3), Cause: tt.cause, Zone: time.UTC}) {
				t.Fatal("the call did not end")
			}
			got := lastEvent(c)
			switch {
			case got.GetStatus() != tt.status:
				t.Errorf("got.GetStatus() = %v, want %v", got.GetStatus(), tt.status)
			case got.GetDisposition() != tt.disposition:
				t.Errorf("got.GetDisposition() = %v, want %v", got.GetDisposition(), tt.disposition)
			case got.GetErrorCode() != tt.errorCode:
				t.Errorf("got.GetErrorCode() = %v, want %v", got.GetErrorCode(), tt.errorCode)
			case got.GetHangupCause() != string(tt.cause):
				t.Errorf("got.GetHangupCause() = %v, want %v", got.GetHangupCause(), string(tt.cause))
			case (got.GetErrorDetail() == "") != (tt.errorCode == ""):
				t.Errorf(`ErrorDetail is empty = %v, want %v`,
					(got.GetErrorDetail() == ""), (tt.errorCode == ""))
			}
		})
	}
}

func TestEnd_ErrorDetailNamesTheSuspectedAccount(t *testing.T) {
	t.Parallel()
	end := func(e callstate.End) *eventv1.Call {
		c := outbound()
		c.Initiate(at(0))
		e.At = at(1)
		c.End(e)
		return lastEvent(c)
	}
	got := end(callstate.End{Cause: callstate.CallRejected, AccountSuspected: true})
	if got, want := got.GetErrorDetail(), end(callstate.End{Cause: callstate.ProviderAuthFailed}).GetErrorDetail(); got != want {
		t.Errorf("error detail = %q, want %q", got, want)
	}
	if got, want := got.GetErrorCode(), callstate.CodeProviderRejected; got != want {
		t.Errorf("error code = %q, want %q", got, want)
	}
	if got, want := got.GetHangupCause(), string(callstate.CallRejected); got != want {
		t.Errorf("hangup cause = %q, want %q", got, want)
	}
	if got, want := got.GetDisposition(), "unreachable"; got != want {
		t.Errorf("disposition = %q, want %q", got, want)
	}
}

// If the owner of a call is dead and the recovery job hangs up, the result of the call is unknown.
// If the call ended before the hang-up, its result is kept.
func TestEnd_ReasonOfTheHangupDeterminesTheCause(t *testing.T) {
	tests := []struct {
		name                     string
		ending                   callstate.Ending
		byUs                     bool
		status, cause, errorCode string
		billable                 int32
	}{
		{
			"recovery hangs up a live call",
			callstate.EndingRecovery,
			true,
			"failed",
			"unspecified",
			"dial_state_unknown",
			0,
		},
		{"recovery finds an ended call", callstate.EndingRecovery, false, "completed", "normal_clearing", "", 4},
		{"the longest duration ends the call", callstate.EndingLongest, true, "completed", "max_duration", "", 4},
		{
			"the person hung up before the longest duration",
			callstate.EndingLongest,
			false,
			"completed",
			"normal_clearing",
			"",
			4,
		},
		{"the agent failed", callstate.EndingAgent, true, "failed", "agent_error", "agent_unavailable", 0},
		{
			"the agent failed and the person hung up",
			callstate.EndingAgent,
			false,
			"failed",
			"agent_error",
			"agent_unavailable",
			0,
		},
		{"a client requested the hang-up", callstate.EndingRequested, true, "completed", "normal_clearing", "", 4},
		{
			"the person hung up before the client's request",
			callstate.EndingRequested,
			false,
			"completed",
			"normal_clearing",
			"",
			4,
		},
		{
			"the watchdog",
			callstate.EndingWatchdog,
			true,
			"failed",
			"recovery_on_timer_expire",
			"provider_unavailable",
			0,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := outbound()
			c.Initiate(at(0))
			c.Ring(at(0.5))
			c.Answer(at(1))
			c.Ending = tt.ending
			c.End(callstate.End{At: at(4.2), Cause: callstate.NormalClearing, ByUs: tt.byUs, Zone: time.UTC})
			got := lastEvent(c)
			switch {
			case got.GetStatus() != tt.status:
				t.Errorf("got.GetStatus() = %v, want %v", got.GetStatus(), tt.status)
			case got.GetHangupCause() != tt.cause:
				t.Errorf("got.GetHangupCause() = %v, want %v", got.GetHangupCause(), tt.cause)
			case got.GetErrorCode() != tt.errorCode:
				t.Errorf("got.GetErrorCode() = %v, want %v", got.GetErrorCode(), tt.errorCode)
			case got.GetBillableSeconds() != tt.billable:
				t.Errorf("got.GetBillableSeconds() = %v, want %v", got.GetBillableSeconds(), tt.billable)
			}
			switch {
			case got.GetRingSeconds() != 1:
				t.Errorf("got.GetRingSeconds() = %v, want 1", got.GetRingSeconds())
			case got.GetTalkSeconds() != 4:
				t.Errorf("got.GetTalkSeconds() = %v, want 4", got.GetTalkSeconds())
			case got.GetTotalSeconds() != 5:
				t.Errorf("got.GetTotalSeconds() = %v, want 5", got.GetTotalSeconds())
			}
		})
	}
}

// A requested hang-up must determine the status and the cause of the call. The carrier can report
// any other cause, for example if the call's owner died and another process hung up.
func TestEnd_RequestedHangupDeterminesStatusAndCause(t *testing.T) {
	for _, cause := range []callstate.Cause{
		callstate.NormalClearing, callstate.OriginatorCancel, callstate.Unspecified, callstate.NormalTemporaryFailure,
	} {
		for _, answered := range []bool{true, false} {
			c, status, want := outbound(), callstate.Canceled, callstate.OriginatorCancel
			c.Initiate(at(0))
			c.Ring(at(0.5))
			if answered {
				c.Answer(at(1))
				status, want = callstate.Completed, callstate.NormalClearing
			}
			c.Ending = callstate.EndingRequested
			c.End(callstate.End{At: at(4.2), Cause: cause, ByUs: true, Zone: time.UTC})
			if c.Status != status {
				t.Errorf("%s, answered %t: status = %q, want %q", cause, answered, c.Status, status)
			}
			if c.HangupCause != want {
				t.Errorf("%s, answered %t: hangup cause = %q, want %q", cause, answered, c.HangupCause, want)
			}
		}
	}
	c := outbound()
	c.Initiate(at(0))
	c.Ending = callstate.EndingRequested
	c.End(callstate.End{At: at(1), Cause: callstate.UserBusy, Zone: time.UTC})
	if c.Status != callstate.Busy {
		t.Errorf("status of a call that was busy before the hang-up = %q, want %q", c.Status, callstate.Busy)
	}
}

// The carrier can end the call of a dead process before the recovery job takes over the call.
func TestEnd_CallWithoutAnOwnerEndsAsUnknown(t *testing.T) {
	c := outbound()
	c.Initiate(at(0))
	c.Answer(at(1))
	c.End(callstate.End{At: at(4), Cause: callstate.Unspecified, ByUs: true})
	switch got := lastEvent(c); {
	case got.GetStatus() != "failed":
		t.Errorf(`got.GetStatus() = %v, want "failed"`, got.GetStatus())
	case got.GetErrorCode() != "dial_state_unknown":
		t.Errorf(`got.GetErrorCode() = %v, want "dial_state_unknown"`, got.GetErrorCode())
	case got.GetBillableSeconds() != 0:
		t.Errorf("got.GetBillableSeconds() = %v, want 0", got.GetBillableSeconds())
	}
}

func TestHear_ReportsOptOutsAndAgentFailures(t *testing.T) {
	c := outbound()
	c.Initiate(at(0))
	c.Answer(at(1))
	if c.Hear("Hello, this is Ana Reyes.", at(2)) || !c.Hear("Never call me again.", at(3)) {
		t.Error("Hear did not find the opt-out")
	}
	if c.Hear("[an unbearable noise on the line]", at(4)); c.Ending != callstate.EndingAgent {
		t.Errorf("ending: c.Ending = %v, want %v", c.Ending, callstate.EndingAgent)
	} else if len(c.Turns) != 5 {
		t.Errorf("ending: length of c.Turns = %d, want 5", len(c.Turns))
	}
	c.End(callstate.End{At: at(5), Cause: callstate.NormalClearing, ByUs: true})
	if !c.Hear("Do not call me again!", at(6)) || len(c.Turns) != 5 {
		t.Error("an opt-out after the end is lost, or changes the transcript")
	}
}

func TestCall_StatusOnlyMovesForward(t *testing.T) {
	rank := map[callstate.Status]int{
		callstate.Fenced:     0,
		callstate.Initiated:  1,
		callstate.Ringing:    2,
		callstate.InProgress: 3,
	}
	rapid.Check(t, func(t *rapid.T) {
		c := outbound()
		for _, step := range rapid.SliceOfN(rapid.SampledFrom([]string{"initiate", "ring", "answer", "end", "hear"}), 1, 30).Draw(t, "steps") {
			before, live, when := c.Status, c.Live(), at(rapid.Float64Range(0, 60).Draw(t, "at"))
			switch step {
			case "initiate":
				c.Initiate(when)
			case "ring":
				c.Ring(when)
			case "answer":
				c.Answer(when)
			case "end":
				c.End(callstate.End{At: when, Cause: callstate.NormalClearing, Zone: time.UTC})
			case "hear":
				c.Hear("Hello?", when)
			}
			if !live && c.Status != before {
				t.Fatalf("%s after the end: %s → %s", step, before, c.Status)
			}
			if to, open := rank[c.Status]; open && to < rank[before] {
				t.Fatalf("%s moved back: %s → %s", step, before, c.Status)
			}
		}
		ends := 0
		for i, f := range c.Facts() {
			if f.Event.GetCall().GetVersion() != int64(i+1) {
				t.Fatalf("fact %d has version %d", i+1, f.Event.GetCall().GetVersion())
			}
			if f.Event.GetEnded() != nil {
				ends++
			}
			got := f.Event.GetCall()
			for _, s := range []*int32{got.RingSeconds, got.TalkSeconds, got.TotalSeconds} {
				if s != nil && *s < 0 {
					t.Fatalf("negative seconds: %v", got)
				}
			}
		}
		if ends > 1 || (ends == 1) != !c.Live() {
			t.Fatalf("%d ends", ends)
		}
	})
}

func TestFact_RepeatedStatusChangeKeepsItsID(t *testing.T) {
	first := outbound()
	second := *first
	first.Initiate(at(0))
	second.Initiate(at(0))
	if first.Facts()[0].ID != second.Facts()[0].ID {
		t.Error("ids of the same fact differ")
	}
	first.Ring(at(1))
	if first.Facts()[0].ID == first.Facts()[1].ID {
		t.Errorf("id of the first fact = %v, want another value",
			first.Facts()[0].ID)
	} else if !strings.HasPrefix(first.Facts()[0].Key, first.CallRequestID.String()) {
		t.Errorf("key of the first fact = %q, want it to begin with %q",
			first.Facts()[0].Key, first.CallRequestID.String())
	}
}

// A request that is tried on two trunks has two calls. A consumer's inbox must apply the end events
// of both calls.
func TestFact_IDsOfTwoCallsOfARequestDiffer(t *testing.T) {
	first, second := outbound(), outbound()
	second.CallRequestID = first.CallRequestID
	first.Initiate(at(0))
	second.Initiate(at(0))
	one, other := first.Facts()[0], second.Facts()[0]
	if one.ID == other.ID {
		t.Errorf("id of the second fact = %v, want another value", one.ID)
	} else if one.Key != other.Key {
		t.Errorf("key of the first fact = %v, want %v", one.Key, other.Key)
	}
}

// The end contains a judgement, so the scripted agent must not judge the conversation.
func TestEnd_UsesTheOutcomeThatTheAgentReported(t *testing.T) {
	t.Parallel()
	c := outbound()
	c.Initiate(at(0))
	c.Answer(at(1))
	c.Note(agent.Turn{Role: agent.RoleAgent, Text: "Good day.", At: at(2)})
	c.Note(agent.Turn{Role: agent.RolePerson, Text: "Please take me off your list.", At: at(3)})
	if len(c.Turns) != 2 {
		t.Errorf("turns: length of c.Turns = %d, want 2", len(c.Turns))
	} else if c.Ending != callstate.EndingNone {
		t.Errorf("turns: c.Ending = %v, want %v", c.Ending, callstate.EndingNone)
	}
	c.End(
		callstate.End{
			At:     at(4),
			Cause:  callstate.NormalClearing,
			Judged: &agent.Judgement{Outcome: agent.OutcomeTransferred, Reached: agent.ReachedHuman},
		},
	)
	if facts := c.Facts(); facts[len(facts)-1].Event.GetEnded() == nil {
		t.Error("the last fact has no ended event, want one")
	} else if !c.Analysing {
		t.Error("the last fact: c.Analysing = false, want true")
	}
	if !c.Analyse(nil, at(5)) || c.Analyse(nil, at(6)) {
		t.Error("Analyse did not publish exactly once")
	}
	facts := c.Facts()
	analysed := facts[len(facts)-1].Event.GetAnalysed()
	switch {
	case c.Disposition != agent.ReachedHuman:
		t.Errorf("c.Disposition = %v, want %v", c.Disposition, agent.ReachedHuman)
	case analysed.GetOutcome() != agent.OutcomeTransferred:
		t.Errorf("analysed.GetOutcome() = %v, want %v", analysed.GetOutcome(), agent.OutcomeTransferred)
	case len(analysed.GetSummaryJson()) != 0:
		t.Errorf("length of analysed.GetSummaryJson() = %v, want 0", len(analysed.GetSummaryJson()))
	case !strings.Contains(string(analysed.GetTranscriptJson()), "take me off"):
		t.Errorf("string(analysed.GetTranscriptJson()) = %q, want it to contain %q",
			string(analysed.GetTranscriptJson()), "take me off")
	}
	c.Note(agent.Turn{Role: agent.RoleAgent, Text: "too late", At: at(7)})
	if len(c.Turns) != 2 {
		t.Errorf("turns after the end = %v", c.Turns)
	}
}

func TestAnalyse_UsesTheSummaryUnlessThePersonWasErased(t *testing.T) {
	t.Parallel()
	for _, erased := range []bool{false, true} {
		c := outbound()
		c.Initiate(at(0))
		c.Answer(at(1))
		c.Note(agent.Turn{Role: agent.RolePerson, Text: "Call me tomorrow.", At: at(2)})
		c.Erased = erased
		c.End(
			callstate.End{
				At:     at(3),
				Cause:  callstate.NormalClearing,
				Judged: &agent.Judgement{Outcome: agent.OutcomeUnknown, Reached: agent.ReachedHuman},
			},
		)
		c.Analyse(&agent.Summary{Outcome: agent.OutcomeCallbackRequested}, at(4))
		facts := c.Facts()
		analysed := facts[len(facts)-1].Event.GetAnalysed()
		want := agent.OutcomeCallbackRequested
		if erased {
			want = agent.OutcomeUnknown
		}
		switch {
		case analysed.GetOutcome() != want:
			t.Errorf("analysed.GetOutcome() = %v, want %v", analysed.GetOutcome(), want)
		case (len(analysed.GetSummaryJson()) == 0) != erased:
			t.Errorf("the summary is empty = %v, want %v",
				(len(analysed.GetSummaryJson()) == 0), erased)
		case (len(analysed.GetTranscriptJson()) == 0) != erased:
			t.Errorf("the transcript is empty = %v, want %v",
				(len(analysed.GetTranscriptJson()) == 0), erased)
		}
	}
}
