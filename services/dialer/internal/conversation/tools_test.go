package conversation

import (
	"slices"
	"strings"
	"testing"
	"time"

	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/callstate"
)

func TestOptOut_IsStoredBeforeTheFarewell(t *testing.T) {
	t.Parallel()
	converse(t, agent.Settings{}, func(k *conversationTest) {
		k.tool(agent.ToolOptOut, `{"quote":"never\u0000 again `+strings.Repeat("x", 2000)+`"}`)
		k.tool(agent.ToolOptOut, `{"quote":"twice"}`)
		if !slices.Equal(k.fakeSession.soFar().calls, []string{"begin", "opted out", "result opt_out", "result opt_out"}) {
			t.Errorf("order of the calls = %v", k.fakeSession.soFar().calls)
		}
		switch {
		case len(k.opted) != 1:
			t.Errorf("length of stored opt-outs = %v, want 1", len(k.opted))
		case !strings.HasPrefix(k.opted[0], "never again"):
			t.Errorf("first opt-out = %q, want it to begin with %q", k.opted[0], "never again")
		case len(k.opted[0]) > 1000:
			t.Errorf("length of first opt-out = %v, want at most 1000", len(k.opted[0]))
		}
		k.tool(agent.ToolCallback, `{"at":"2000-01-01T11:00:00Z"}`)
		k.hangUp()
		<-k.over
		if !k.result.OptedOut {
			t.Error("opted out = false, want true")
		} else if k.result.Outcome != agent.OutcomeOptedOut {
			t.Errorf("outcome = %v, want %v", k.result.Outcome, agent.OutcomeOptedOut)
		}
	})
}

func TestCallback_StoresAFutureTimeInThePersonsZone(t *testing.T) {
	t.Parallel()
	// The virtual clock starts on 2000-01-01 at 00:00 UTC. For the person it is then 01:00.
	for text, want := range map[string]string{
		"2000-01-01T09:00:00Z": "2000-01-01T10:00:00+01:00", "2000-01-02T10:00:00+05:00": "2000-01-02T06:00:00+01:00",
		"2000-01-01T10:00": "2000-01-01T10:00:00+01:00", "2000-01-01T10:00:05": "2000-01-01T10:00:05+01:00",
		"2000-01-01T01:00": "", "1999-12-31T23:59:59Z": "", "2001-01-03T00:00:00Z": "", "tomorrow": "", "": "", "10:00": "",
	} {
		converse(t, agent.Settings{}, func(k *conversationTest) {
			k.tool(agent.ToolCallback, `{"at":"`+text+`"}`)
			k.hangUp()
			<-k.over
			got := ""
			if k.result.CallbackAt != nil {
				got = k.result.CallbackAt.Format(time.RFC3339)
			}
			state := k.fakeSession.soFar().result[agent.ToolCallback]["state"]
			switch {
			case got != want:
				t.Errorf("%q: got = %v, want %v", text, got, want)
			case (state == "noted") != (want != ""):
				t.Errorf(`%q: the callback is noted = %v, want %v`, text, (state == "noted"), (want != ""))
			case (k.result.Outcome == agent.OutcomeCallbackRequested) != (want != ""):
				t.Errorf("%q: the outcome is callback_requested = %v, want %v",
					text, (k.result.Outcome == agent.OutcomeCallbackRequested), (want != ""))
			}
		})
	}
}

func TestTransfer_RefusesTargetsThatTheSettingsDoNotContain(t *testing.T) {
	t.Parallel()
	settings := agent.Settings{Transfers: map[string]string{"desk": "+41440000000"}}
	converse(t, settings, func(k *conversationTest) {
		for _, to := range []string{"+1900555", "", "+41440000000"} {
			k.tool(agent.ToolTransfer, `{"to":"`+to+`"}`)
			if k.phone.to != "" {
				t.Errorf("transfer target = %q, want it empty", k.phone.to)
			} else if got := k.fakeSession.soFar().result[agent.ToolTransfer]["state"]; got != "refused" {
				t.Errorf(`result[agent.ToolTransfer]["state"] = %q, want "refused"`, got)
			}
		}
		k.phone.err = errPhone
		k.tool(agent.ToolTransfer, `{"to":"desk"}`)
		if got := k.fakeSession.soFar().result[agent.ToolTransfer]["state"]; got != "failed" {
			t.Errorf(`a transfer that failed: result[agent.ToolTransfer]["state"] = %q, want "failed"`, got)
		} else if k.isOver() {
			t.Error("a transfer that failed: ended = true, want false")
		}
		k.phone.err = nil
		k.tool(agent.ToolTransfer, `{"to":"desk"}`)
		k.wantEnd(callstate.NormalClearing, 0, time.Second)
		if k.phone.to != "+41440000000" {
			t.Errorf(`transfer target = %q, want "+41440000000"`, k.phone.to)
		} else if k.result.Outcome != agent.OutcomeTransferred {
			t.Errorf("outcome = %v, want %v", k.result.Outcome, agent.OutcomeTransferred)
		}
	})
}

func TestDigits_OnlyValidDigitsAreSent(t *testing.T) {
	t.Parallel()
	converse(t, agent.Settings{}, func(k *conversationTest) {
		for digits, want := range map[string]string{"1": "done", "0123456789*#": "done", "": "refused", "1A": "refused", "12 3": "refused", strings.Repeat("1", 33): "refused"} {
			k.tool(agent.ToolDigits, `{"digits":"`+digits+`"}`)
			if got := k.fakeSession.soFar().result[agent.ToolDigits]["state"]; got != want {
				t.Errorf("got = %v, want %v", got, want)
			} else if want == "done" && k.phone.keys != digits {
				t.Errorf("sent digits = %v, want %v", k.phone.keys, digits)
			}
		}
		k.tool("format_disk", `{}`)
		k.tool(agent.ToolDigits, `[1]`)
		if got := k.fakeSession.soFar().result["format_disk"]["state"]; got != "refused" {
			t.Errorf(`result["format_disk"]["state"] = %q, want "refused"`, got)
		} else if got := k.fakeSession.soFar().result[agent.ToolDigits]["state"]; got != "refused" {
			t.Errorf(`result[agent.ToolDigits]["state"] = %q, want "refused"`, got)
		}
	})
}

func TestVoicemail_HangUpPolicyEndsTheCall(t *testing.T) {
	t.Parallel()
	settings := agent.Settings{OnVoicemail: agent.VoicemailHangUp}
	t.Run("after the tool call voicemail_detected", func(t *testing.T) {
		t.Parallel()
		converse(t, settings, func(k *conversationTest) {
			k.hear(time.Second)
			k.speak("a", time.Minute)
			k.tool(agent.ToolVoicemail, `{"kind":"voicemail"}`)
			k.wantEnd(callstate.NormalClearing, time.Second, time.Second)
			if k.result.Reached != agent.ReachedVoicemail {
				t.Errorf("disposition = %v, want %v", k.result.Reached, agent.ReachedVoicemail)
			} else if k.result.Outcome != agent.OutcomeNoConversation {
				t.Errorf("outcome = %v, want %v", k.result.Outcome, agent.OutcomeNoConversation)
			}
		})
	})
	t.Run("after a beep", func(t *testing.T) {
		t.Parallel()
		converse(t, settings, func(k *conversationTest) {
			k.fakeDetector.next = Beep
			k.hear(20 * time.Millisecond)
			k.wantEnd(callstate.NormalClearing, 0, time.Second)
			if k.result.Reached != agent.ReachedVoicemail {
				t.Errorf("%+v", k.result)
			}
		})
	})
	t.Run("call continues if only the speech resembles a machine", func(t *testing.T) {
		t.Parallel()
		converse(t, settings, func(k *conversationTest) {
			k.fakeDetector.next = Machine
			k.hear(2 * time.Second)
			if k.isOver() {
				t.Error("a hint alone ended the call")
			}
		})
	})
	t.Run("call continues after a beep in the middle of a conversation", func(t *testing.T) {
		t.Parallel()
		converse(t, settings, func(k *conversationTest) {
			for range beepTurns {
				k.send(agent.Event{Kind: agent.Utterance, Role: agent.RolePerson, Text: "I say something."})
			}
			k.fakeDetector.next = Beep
			k.hear(time.Second)
			if k.isOver() {
				t.Error("a beep in the middle of the conversation ended the call")
			}
			k.pass(time.Second)
		})
	})
}

func TestFax_EndsTheCallUnlessThePolicyIsToContinue(t *testing.T) {
	t.Parallel()
	converse(t, agent.Settings{OnVoicemail: agent.VoicemailHangUp}, func(k *conversationTest) {
		k.fakeDetector.next = Fax
		k.hear(20 * time.Millisecond)
		k.wantEnd(callstate.NormalClearing, 0, time.Second)
		if k.result.Reached != agent.ReachedFax {
			t.Errorf("%+v", k.result)
		}
	})
	converse(t, agent.Settings{}, func(k *conversationTest) {
		k.fakeDetector.next = Fax
		k.hear(20 * time.Millisecond)
		if k.isOver() {
			t.Error("a fax tone ended the call although the policy is to continue")
		}
	})
}

// The person hangs up in the middle of a sentence. If the sentence is an opt-out, it must be
// stored.
func TestRun_TranscribesTheSentenceBeforeTheHangup(t *testing.T) {
	t.Parallel()
	converse(t, agent.Settings{}, func(k *conversationTest) {
		k.hear(time.Second)
		k.hangUp()
		k.pass(700 * time.Millisecond)
		if k.isOver() {
			t.Fatal("over: ended = true, want false")
		}
		if got := k.fakeSession.soFar().frames; got < 80 {
			t.Fatalf("over: frames received by the agent = %v, want at least 80", got)
		}
		k.send(
			agent.Event{Kind: agent.Audio, Item: "a", Audio: tone(time.Second)},
			agent.Event{Kind: agent.Utterance, Role: agent.RolePerson, Text: "Never again."},
		)
		k.tool(agent.ToolTransfer, `{"to":"desk"}`)
		k.tool(agent.ToolOptOut, `{"quote":"Never again."}`)
		k.send(agent.Event{Kind: agent.TurnDone})
		k.wantEnd("", 1700*time.Millisecond, 1800*time.Millisecond)
		switch {
		case k.result.Outcome != agent.OutcomeOptedOut:
			t.Errorf("outcome = %v, want %v", k.result.Outcome, agent.OutcomeOptedOut)
		case len(k.opted) != 1:
			t.Errorf("length of stored opt-outs = %v, want 1", len(k.opted))
		case len(k.result.Turns) != 1:
			t.Errorf("length of turns = %v, want 1", len(k.result.Turns))
		case k.phone.to != "":
			t.Errorf(`transfer target = %v, want ""`, k.phone.to)
		}
	})
	converse(t, agent.Settings{}, func(k *conversationTest) {
		k.hear(time.Second)
		k.hangUp()
		k.wantEnd("", 3*time.Second, 3*time.Second) // without a transcript, Run waits for lastSentenceTimeout
	})
	converse(t, agent.Settings{}, func(k *conversationTest) {
		k.hear(time.Second)
		k.pass(4 * time.Second)
		k.hangUp()
		// The person was silent before hanging up, so Run does not wait.
		k.wantEnd("", 5*time.Second, 5*time.Second)
	})
}

func TestVoicemail_MessagePolicyLeavesTheMessage(t *testing.T) {
	t.Parallel()
	settings := agent.Settings{OnVoicemail: agent.VoicemailMessage, Message: "Please call back."}
	message := func(k *conversationTest) {
		k.send(
			agent.Event{Kind: agent.Audio, Item: "m", Audio: tone(time.Second), Keep: true, Asked: true},
			agent.Event{Kind: agent.ItemDone, Item: "m"},
			agent.Event{Kind: agent.TurnDone},
		)
	}
	t.Run("after the beep", func(t *testing.T) {
		t.Parallel()
		converse(t, settings, func(k *conversationTest) {
			k.speak("greeting", time.Minute)
			k.hear(time.Second)
			k.tool(agent.ToolVoicemail, `{"kind":"voicemail"}`)
			// During the machine's greeting, the agent's audio must not be played.
			k.send(agent.Event{Kind: agent.Audio, Item: "babble", Audio: tone(time.Second)})
			k.hear(3 * time.Second)
			if got := len(k.fakeSession.soFar().sayTexts); got != 0 {
				t.Errorf("length of requested sentences = %d, want 0", got)
			} else if got := k.heardAudio(); got > time.Second {
				t.Errorf("loud audio sent = %v, want at most %v", got, time.Second)
			}
			k.fakeDetector.next = Beep
			k.hear(20 * time.Millisecond)
			want := []string{"Hello, you are talking to an AI assistant. Please call back."}
			if got := k.fakeSession.soFar().sayTexts; !slices.Equal(got, want) {
				t.Fatalf("sayTexts = %q, want %q", got, want)
			}
			message(k)
			k.wantEnd(callstate.NormalClearing, 5*time.Second, 5100*time.Millisecond)
			if k.result.Reached != agent.ReachedVoicemail {
				t.Errorf("disposition = %v, want %v", k.result.Reached, agent.ReachedVoicemail)
			} else if got := k.fakeSession.soFar().cuts["babble"]; got != 0 {
				t.Errorf(`cuts["babble"] = %v, want 0`, got)
			}
		})
	})
	t.Run("after two seconds of silence", func(t *testing.T) {
		t.Parallel()
		converse(t, settings, func(k *conversationTest) {
			k.hear(time.Second)
			k.tool(agent.ToolVoicemail, `{"kind":"voicemail"}`)
			k.hear(4 * time.Second)
			k.pass(1900 * time.Millisecond)
			if len(k.fakeSession.soFar().sayTexts) != 0 {
				t.Error("the message started before 2 s of silence")
			}
			k.pass(200 * time.Millisecond)
			if len(k.fakeSession.soFar().sayTexts) != 1 {
				t.Error("the message did not start after 2 s of silence")
			}
		})
	})
	t.Run("after the timeout at a machine that is never silent", func(t *testing.T) {
		t.Parallel()
		converse(t, settings, func(k *conversationTest) {
			k.tool(agent.ToolVoicemail, `{"kind":"voicemail"}`)
			k.hear(messageTimeout + 100*time.Millisecond)
			if len(k.fakeSession.soFar().sayTexts) != 1 {
				t.Error("the message did not start")
			}
		})
	})
	t.Run("after a beep without a tool call", func(t *testing.T) {
		t.Parallel()
		converse(t, settings, func(k *conversationTest) {
			k.fakeDetector.next = Beep
			k.hear(20 * time.Millisecond)
			message(k)
			k.wantEnd(callstate.NormalClearing, time.Second, 1200*time.Millisecond)
		})
	})
	t.Run("after a beep during the disclosure", func(t *testing.T) {
		t.Parallel()
		converse(t, settings, func(k *conversationTest) {
			k.send(agent.Event{Kind: agent.Audio, Item: "d", Audio: tone(time.Second), Keep: true})
			k.fakeDetector.next = Beep
			k.hear(20 * time.Millisecond)
			k.send(
				agent.Event{Kind: agent.Audio, Item: "d", Audio: tone(time.Second), Keep: true},
				agent.Event{Kind: agent.ItemDone, Item: "d"},
				agent.Event{Kind: agent.TurnDone},
			)
			k.pass(4 * time.Second)
			if k.isOver() {
				t.Fatal("the call ended without the message")
			}
			message(k)
			k.wantEnd(callstate.NormalClearing, 5*time.Second, 5200*time.Millisecond)
			if k.heardAudio() < 2900*time.Millisecond {
				t.Errorf("audio sent = %s, want the disclosure and the message", k.heardAudio())
			}
		})
	})
	t.Run("hangs up if the settings have no message", func(t *testing.T) {
		t.Parallel()
		converse(t, agent.Settings{OnVoicemail: agent.VoicemailMessage}, func(k *conversationTest) {
			k.tool(agent.ToolVoicemail, `{}`)
			k.wantEnd(callstate.NormalClearing, 0, time.Second)
		})
	})
}

func TestVoicemail_ContinuePolicyContinuesTheConversation(t *testing.T) {
	t.Parallel()
	converse(t, agent.Settings{}, func(k *conversationTest) {
		k.fakeDetector.next = Beep
		k.hear(20 * time.Millisecond)
		k.tool(agent.ToolVoicemail, `{"kind":"voicemail"}`)
		k.pass(3 * time.Second)
		if k.isOver() {
			t.Error("ended = true, want false")
		} else if got := k.fakeSession.soFar().result[agent.ToolVoicemail]["next"]; got != "Go on." {
			t.Errorf(`result[agent.ToolVoicemail]["next"] = %q, want "Go on."`, got)
		}
		k.hangUp()
		<-k.over
		if k.result.Reached != agent.ReachedVoicemail {
			t.Errorf("%+v", k.result)
		}
	})
}

// The refusal must contain the agent's list of outcomes. The call must wait a limited time for a
// second end_call.
func TestEndCall_RefusesAnUnlistedOutcome(t *testing.T) {
	t.Parallel()
	settings := agent.Settings{Outcomes: []string{"sold", "not_sold"}}
	tests := []struct {
		name, second, want string
	}{
		{name: "second end_call has a listed outcome", second: `{"outcome":"sold"}`, want: "sold"},
		{name: "second end_call repeats the outcome", second: `{"outcome":"great"}`, want: agent.OutcomeUnknown},
		{name: "second end_call has no outcome", second: `{}`, want: agent.OutcomeUnknown},
		{name: "no second end_call", want: agent.OutcomeUnknown},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			converse(t, settings, func(k *conversationTest) {
				k.hear(time.Second)
				k.tool(agent.ToolEndCall, `{"outcome":"great"}`)
				k.send(agent.Event{Kind: agent.TurnDone})
				k.pass(3 * time.Second)
				if k.isOver() {
					t.Fatal("the call ended without waiting for the correction")
				}
				answer := k.fakeSession.soFar().result[agent.ToolEndCall]
				if got := answer["state"]; got != "refused" {
					t.Errorf("state of the first answer = %v, want refused", got)
				}
				allowed, _ := answer["allowed"].([]any)
				if !slices.Contains(allowed, any("sold")) {
					t.Errorf("allowed values in the answer = %v, want sold among them", allowed)
				}
				if test.second != "" {
					k.tool(agent.ToolEndCall, test.second)
				}
				k.pass(3 * time.Second)
				if !k.isOver() {
					t.Fatal("the call has not ended after 3 s")
				}
				if got := k.result.Outcome; got != test.want {
					t.Errorf("outcome = %q, want %q", got, test.want)
				}
				if got := k.result.UnlistedOutcome; got != "great" {
					t.Errorf("unlisted outcome = %q, want %q", got, "great")
				}
			})
		})
	}
}

func TestResult_ContainsTheDispositionAndOutcome(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, reached, outcome string
		do                     func(*conversationTest)
	}{
		{"no sound of the person", agent.ReachedAbandoned, agent.OutcomeNoConversation, func(*conversationTest) {}},
		{"short sound of the person", agent.ReachedAbandoned, agent.OutcomeNoConversation,
			func(k *conversationTest) { k.hear(200 * time.Millisecond) }},
		{
			"long sound of the person", agent.ReachedHuman, agent.OutcomeUnknown,
			func(k *conversationTest) { k.hear(time.Second) },
		},
		{"words of the person", agent.ReachedHuman, agent.OutcomeUnknown, func(k *conversationTest) {
			k.send(agent.Event{Kind: agent.Utterance, Role: agent.RolePerson, Text: "Hello?"})
		}},
		{"phone menu", agent.ReachedIVR, agent.OutcomeUnknown,
			func(k *conversationTest) { k.hear(time.Second); k.tool(agent.ToolVoicemail, `{"kind":"ivr"}`) }},
		{"call screening service", agent.ReachedScreening, agent.OutcomeUnknown, func(k *conversationTest) {
			k.hear(time.Second)
			k.tool(agent.ToolVoicemail, `{"kind":"call_screening"}`)
		}},
		{"fax machine", agent.ReachedFax, agent.OutcomeNoConversation,
			func(k *conversationTest) { k.hear(time.Second); k.tool(agent.ToolVoicemail, `{"kind":"fax"}`) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			converse(t, agent.Settings{}, func(k *conversationTest) {
				test.do(k)
				k.hangUp()
				<-k.over
				if k.result.Reached != test.reached {
					t.Errorf("disposition = %v, want %v", k.result.Reached, test.reached)
				} else if k.result.Outcome != test.outcome {
					t.Errorf("outcome = %v, want %v", k.result.Outcome, test.outcome)
				}
			})
		})
	}
}
