package conversation

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/callstate"
)

func TestBargeIn_AgentReceivesTheLengthOfThePlayedAudio(t *testing.T) {
	t.Parallel()
	converse(t, agent.Settings{}, func(k *conversationTest) {
		k.speak("done", 100*time.Millisecond)
		k.speak("cut", 2*time.Second)
		k.speak("never", time.Second)
		k.send(
			agent.Event{
				Kind: agent.Utterance,
				Role: agent.RoleAgent,
				Item: "cut",
				Text: "one two three four five six seven eight",
			},
			agent.Event{Kind: agent.Utterance, Role: agent.RoleAgent, Item: "never", Text: "This was never said."},
		)
		k.pass(600 * time.Millisecond)
		k.send(agent.Event{Kind: agent.SpeechStarted, Item: "person"})
		// The agent sent this audio before it received the event of the interruption, so the audio must
		// be dropped.
		k.send(agent.Event{Kind: agent.Audio, Item: "cut", Audio: tone(time.Second)})
		k.pass(3 * time.Second)
		if heard := k.heardAudio(); heard != 600*time.Millisecond {
			t.Errorf("loud audio sent = %s, want 600ms", heard)
		}
		switch {
		case len(k.fakeSession.soFar().cuts) != 2:
			t.Errorf("length of cuts = %v, want 2", len(k.fakeSession.soFar().cuts))
		case k.fakeSession.soFar().cuts["cut"] != 500*time.Millisecond:
			t.Errorf(`cuts["cut"] = %v, want %v`, k.fakeSession.soFar().cuts["cut"], 500*time.Millisecond)
		case k.fakeSession.soFar().cuts["never"] != 0:
			t.Errorf(`cuts["never"] = %v, want 0`, k.fakeSession.soFar().cuts["never"])
		}
		if !slices.Equal(k.fakeSession.soFar().played, []string{"done"}) {
			t.Errorf("items reported as played = %v", k.fakeSession.soFar().played)
		}
		k.send(agent.Event{Kind: agent.Utterance, Role: agent.RolePerson, Item: "person", Text: "Wait."})
		k.hangUp()
		<-k.over
		switch turns := k.result.Turns; {
		case len(turns) != 2:
			t.Errorf("length of turns = %v, want 2", len(turns))
		case turns[0].Text != "one two –":
			t.Errorf(`turns[0].Text = %v, want "one two –"`, turns[0].Text)
		case turns[1].Text != "Wait.":
			t.Errorf(`turns[1].Text = %v, want "Wait."`, turns[1].Text)
		}
	})
}

func TestBargeIn_DoesNotInterruptTheDisclosure(t *testing.T) {
	t.Parallel()
	converse(t, agent.Settings{}, func(k *conversationTest) {
		k.send(
			agent.Event{Kind: agent.Audio, Item: "disclosure", Audio: tone(time.Second), Keep: true},
			agent.Event{Kind: agent.ItemDone, Item: "disclosure"},
		)
		k.speak("greeting", time.Second)
		k.pass(200 * time.Millisecond)
		k.send(agent.Event{Kind: agent.SpeechStarted, Item: "p"})
		k.pass(3 * time.Second)
		if heard := k.heardAudio(); heard != time.Second {
			t.Errorf("loud audio sent = %s, want only the whole disclosure", heard)
		}
		if _, found := k.fakeSession.soFar().cuts["disclosure"]; found {
			t.Error("cut: found = true, want false")
		} else if got := len(k.fakeSession.soFar().cuts); got != 1 {
			t.Errorf("cut: length of cuts = %d, want 1", got)
		}
	})
}

func TestTranscript_TurnsAreInTheOrderOfTheAudio(t *testing.T) {
	t.Parallel()
	converse(t, agent.Settings{}, func(k *conversationTest) {
		begun := time.Now()
		sendUtterance := func(role, item, text string) {
			k.send(agent.Event{Kind: agent.Utterance, Role: role, Item: item, Text: text})
		}
		k.speak("a1", time.Second)
		k.speak("a2", time.Second)
		sendUtterance(agent.RoleAgent, "a1", "First.")
		sendUtterance(agent.RoleAgent, "a2", "Second.")
		k.pass(5 * time.Second)
		k.send(agent.Event{Kind: agent.SpeechStarted, Item: "p1"})
		k.pass(2 * time.Second)
		k.speak("a3", time.Second)
		sendUtterance(agent.RoleAgent, "a3", "Fourth.")
		k.pass(time.Second)
		sendUtterance(agent.RolePerson, "p1", "Third.") // the transcript arrives after the next turn has begun
		k.hangUp()
		<-k.over
		var texts []string
		for _, turn := range k.result.Turns {
			texts = append(texts, turn.Text)
		}
		if got := strings.Join(texts, " "); got != "First. Second. Third. Fourth." {
			t.Errorf("turns = %s", got)
		}
		for i, want := range []time.Duration{20 * time.Millisecond, 1020 * time.Millisecond, 5 * time.Second, 7020 * time.Millisecond} {
			if at := k.result.Turns[i].At.Sub(begun); at < want-20*time.Millisecond {
				t.Errorf("Sub: at = %v, want at least %v; texts[i] = %q", at, want-20*time.Millisecond, texts[i])
			} else if at > want+20*time.Millisecond {
				t.Errorf("Sub: at = %v, want at most %v; texts[i] = %q", at, want+20*time.Millisecond, texts[i])
			}
		}
		if k.result.FirstAudio != 20*time.Millisecond {
			t.Errorf("first audio after %s", k.result.FirstAudio)
		}
	})
}

func TestTranscript_NumberOfTurnsAndBytesIsLimited(t *testing.T) {
	t.Parallel()
	tr := newTranscript()
	for i := range 5_000 {
		tr.addText(agent.RolePerson, "", strings.Repeat("x", 50<<10), time.Unix(int64(i), 0))
		tr.beginItem(string(rune(i)), time.Unix(int64(i), 0))
	}
	turns := tr.sortedTurns()
	switch {
	case len(turns) != 9:
		t.Errorf("length of turns = %v, want 9", len(turns))
	case len(turns[0].Text) != maxTurnBytes:
		t.Errorf("length of turns[0].Text = %v, want %v", len(turns[0].Text), maxTurnBytes)
	case len(tr.items) > maxItems:
		t.Errorf("length of tr.items = %v, want at most %v", len(tr.items), maxItems)
	}
	text, err := agent.Transcript(turns)
	switch {
	case err != nil:
		t.Errorf("error = %v, want none", err)
	case len(text) > 256<<10:
		t.Errorf("length of text = %v, want at most %v", len(text), 256<<10)
	case !strings.HasSuffix(string(text), `"truncated":true}`):
		t.Errorf("string(text) = %q, want it to end with %q", string(text), `"truncated":true}`)
	}
}

func TestShortenText_CutsBetweenWords(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text string
		part float64
		want string
	}{
		{"one two three", 1, "one two three"}, {"one two three", 0, ""}, {"one two three", 0.1, ""}, {"one two three", 0.3, "one –"},
		{"one two three", 0.6, "one two –"}, {"one two three", 0.99, "one two –"}, {"", 0.5, ""},
	} {
		if got := shortenText(test.text, test.part); got != test.want {
			t.Errorf("shortened(%q, %v) = %q, want %q", test.text, test.part, got, test.want)
		}
	}
}

func TestRun_EndsTheCallAfterSilence(t *testing.T) {
	t.Parallel()
	converse(t, agent.Settings{SilenceSeconds: 10}, func(k *conversationTest) {
		k.speak("a", 5*time.Second)
		k.pass(9 * time.Second)
		k.hear(time.Second)
		k.pass(9 * time.Second)
		if k.isOver() {
			t.Fatalf("the call ended after %s", k.ended)
		}
		k.HearDigit('5')
		for range 9 * 50 {
			k.HearFrame(hush(20 * time.Millisecond))
			k.pass(20 * time.Millisecond)
		}
		k.wantEnd(callstate.SilenceTimeout, 28*time.Second, 30*time.Second)
	})
}

func TestRun_EndsTheCallAtTheMaximumDuration(t *testing.T) {
	t.Parallel()
	converse(t, agent.Settings{SilenceSeconds: 3600}, func(k *conversationTest) {
		k.pass(11 * time.Minute)
		k.wantEnd(callstate.MaxDuration, 10*time.Minute, 10*time.Minute)
	})
	if c := New(&fakeSession{}, Settings{Longest: 2 * time.Hour}, nil, nil, nil); c.settings.Longest != agent.Longest {
		t.Errorf("longest call = %s", c.settings.Longest)
	}
}

func TestEndCall_WaitsForTheQueuedAudio(t *testing.T) {
	t.Parallel()
	converse(t, agent.Settings{Outcomes: []string{"sold"}}, func(k *conversationTest) {
		k.speak("farewell", 1800*time.Millisecond)
		k.tool(agent.ToolEndCall, `{"outcome":"sold"}`)
		k.send(agent.Event{Kind: agent.TurnDone})
		k.pass(500 * time.Millisecond)
		// The person speaks, but this must not interrupt the farewell.
		k.send(
			agent.Event{Kind: agent.SpeechStarted, Item: "p"},
			agent.Event{Kind: agent.Utterance, Role: agent.RolePerson, Item: "p", Text: "Bye."},
		)
		k.wantEnd(callstate.NormalClearing, 1800*time.Millisecond, 1900*time.Millisecond)
		if heard := k.heardAudio(); heard != 1800*time.Millisecond {
			t.Errorf("loud audio of the farewell = %s", heard)
		}
		if k.result.Outcome != "sold" {
			t.Errorf(`outcome = %q, want "sold"`, k.result.Outcome)
		} else if k.result.Unheard != 7 {
			t.Errorf("unheard frames = %v, want 7", k.result.Unheard)
		}
	})
}

func TestEndCall_LimitsTheWaitForQueuedAudio(t *testing.T) {
	t.Parallel()
	t.Run("agent sends no TurnDone", func(t *testing.T) {
		t.Parallel()
		converse(t, agent.Settings{}, func(k *conversationTest) {
			k.speak("farewell", time.Second)
			k.tool(agent.ToolEndCall, `{}`)
			k.wantEnd(callstate.NormalClearing, 2500*time.Millisecond, 2600*time.Millisecond)
		})
	})
	t.Run("agent continues to talk", func(t *testing.T) {
		t.Parallel()
		converse(t, agent.Settings{}, func(k *conversationTest) {
			k.speak("a", 4*time.Minute)
			k.tool(agent.ToolEndCall, `{}`)
			k.wantEnd(callstate.NormalClearing, time.Minute, time.Minute)
		})
	})
}

func TestRun_EndsTheCallAfterAnAgentFailure(t *testing.T) {
	t.Parallel()
	t.Run("Failed ends the call immediately", func(t *testing.T) {
		t.Parallel()
		converse(t, agent.Settings{}, func(k *conversationTest) {
			k.hear(time.Second)
			k.speak("a", time.Minute)
			k.send(agent.Event{Kind: agent.Failed, Err: agent.ErrBroken})
			k.wantEnd(callstate.AgentError, time.Second, time.Second)
			if k.result.Outcome != "" {
				t.Errorf("outcome = %q, want it empty", k.result.Outcome)
			} else if k.result.Reached != agent.ReachedError {
				t.Errorf("disposition = %v, want %v", k.result.Reached, agent.ReachedError)
			}
		})
	})
	t.Run("Failed during the farewell: the farewell is played to its end", func(t *testing.T) {
		t.Parallel()
		converse(t, agent.Settings{}, func(k *conversationTest) {
			k.speak("a", time.Second)
			k.tool(agent.ToolEndCall, `{}`)
			k.send(agent.Event{Kind: agent.Failed, Err: agent.ErrBroken})
			k.wantEnd(callstate.NormalClearing, time.Second, 1100*time.Millisecond)
		})
	})
	t.Run("Closed ends the call after the queued audio", func(t *testing.T) {
		t.Parallel()
		converse(t, agent.Settings{}, func(k *conversationTest) {
			k.speak("a", time.Second)
			k.fakeSession.Close()
			k.wantEnd(callstate.NormalClearing, time.Second, 1100*time.Millisecond)
		})
	})
}

func TestRun_HangupEndsTheSession(t *testing.T) {
	t.Parallel()
	converse(t, agent.Settings{}, func(k *conversationTest) {
		k.HearDigit('#')
		k.hangUp()
		k.wantEnd("", 0, 0)
		switch {
		case !k.fakeSession.soFar().ended:
			t.Error("session closed = false, want true")
		case k.fakeSession.soFar().digits != "#":
			t.Errorf(`digits received by the agent = %v, want "#"`, k.fakeSession.soFar().digits)
		case k.fakeSession.soFar().calls[0] != "begin":
			t.Errorf(`first call of the agent = %v, want "begin"`, k.fakeSession.soFar().calls[0])
		}
	})
}

func TestConversation_ReportsTurnsWhileTheCallIsInProgress(t *testing.T) {
	t.Parallel()
	converse(t, agent.Settings{}, func(k *conversationTest) {
		var got []string
		k.settings.Spoken = func(number int, turn agent.Turn) {
			got = append(got, strconv.Itoa(number)+" "+turn.Role+": "+turn.Text)
		}
		k.send(
			agent.Event{Kind: agent.Utterance, Role: agent.RoleAgent, Item: "a", Text: "Hello."},
			agent.Event{Kind: agent.Utterance, Role: agent.RolePerson, Item: "b", Text: " "},
			agent.Event{Kind: agent.Utterance, Role: agent.RolePerson, Item: "c", Text: "Hi."},
		)
		k.pass(100 * time.Millisecond)
		if want := []string{"1 agent: Hello.", "2 person: Hi."}; !slices.Equal(got, want) {
			t.Errorf("turns before the end = %q, want %q", got, want)
		}
		k.hangUp()
		<-k.over
	})
}
