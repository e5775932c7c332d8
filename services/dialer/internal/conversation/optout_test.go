package conversation

import (
	"slices"
	"testing"
	"time"

	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/callstate"
)

// The outcome opted_out must count as an opt-out even if the agent does not call the tool opt_out.
func TestEndCall_OutcomeOptedOutIsAnOptOut(t *testing.T) {
	t.Parallel()
	const words = "No, thank you, that is enough."
	if agent.RefusesFurtherCalls(words) {
		t.Fatalf("RefusesFurtherCalls(%q) = true, want words that only the outcome makes an opt-out", words)
	}
	utterance := agent.Event{Kind: agent.Utterance, Role: agent.RolePerson, Item: "p1", Text: words}
	endCall := agent.Event{
		Kind: agent.ToolCall,
		Tool: agent.ToolEndCall,
		ID:   "e",
		Args: []byte(`{"outcome":"opted_out"}`),
	}
	tests := []struct {
		name     string
		settings agent.Settings
		run      func(*conversationTest)
	}{
		{name: "outcome during the call", run: func(k *conversationTest) {
			k.send(utterance, endCall)
			k.hangUp()
		}},
		{name: "outcome before the transcript of the words", run: func(k *conversationTest) {
			k.send(agent.Event{Kind: agent.Utterance, Role: agent.RolePerson, Item: "p0", Text: "Hello?"},
				agent.Event{Kind: agent.Utterance, Role: agent.RoleAgent, Text: "Good day."}, endCall)
			k.pass(20 * time.Millisecond)
			k.send(utterance)
		}},
		{name: "transcript after the person hung up", run: func(k *conversationTest) {
			k.send(endCall)
			k.fakeSession.mu.Lock() // so that Close cannot close the channel before the words are sent
			defer k.fakeSession.mu.Unlock()
			k.hangUp()
			k.fakeSession.events <- utterance
		}},
		{name: "agent speaks between the words and the outcome", run: func(k *conversationTest) {
			k.send(utterance, agent.Event{Kind: agent.Utterance, Role: agent.RoleAgent, Text: "Goodbye."}, endCall)
		}},
		{
			name:     "agent with its own outcomes",
			settings: agent.Settings{Outcomes: []string{"sold"}},
			run: func(k *conversationTest) {
				k.send(utterance, endCall)
				k.hangUp()
			},
		},
		{name: "outcome after the tool opt_out", run: func(k *conversationTest) {
			k.send(utterance)
			k.tool(agent.ToolOptOut, `{"quote":"`+words+`"}`)
			k.send(endCall)
			k.hangUp()
		}},
		{name: "outcome after the person hung up", run: func(k *conversationTest) {
			k.send(utterance)
			k.hear(time.Second)
			k.hangUp()
			k.pass(100 * time.Millisecond)
			k.send(endCall)
		}},
		{name: "outcome after the event that ended the call", run: func(k *conversationTest) {
			ends := agent.Event{
				Kind: agent.ToolCall,
				Tool: agent.ToolVoicemail,
				ID:   "v",
				Args: []byte(`{"kind":"fax"}`),
			}
			k.send(utterance)
			k.fakeSession.mu.Lock() // so that Close cannot close the channel between the two events
			defer k.fakeSession.mu.Unlock()
			k.fakeSession.events <- ends
			k.fakeSession.events <- endCall
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			converse(t, test.settings, func(k *conversationTest) {
				test.run(k)
				<-k.over
				if want := []string{words}; !slices.Equal(k.opted, want) {
					t.Errorf("stored opt-outs = %q, want %q", k.opted, want)
				}
				if k.result.Outcome != agent.OutcomeOptedOut {
					t.Errorf("outcome = %q, want %q", k.result.Outcome, agent.OutcomeOptedOut)
				}
				if !k.result.OptedOut {
					t.Error("Result.OptedOut = false, want true")
				}
			})
		})
	}
}

// The model ends the call before it has sent the transcripts of the person's last sentences.
func TestEndCall_WaitsForTheTranscriptsOfTheLastSentences(t *testing.T) {
	t.Parallel()
	const words = "Please never call me again."
	started := agent.Event{Kind: agent.SpeechStarted, Item: "p"}
	endCall := agent.Event{Kind: agent.ToolCall, Tool: agent.ToolEndCall, ID: "e", Args: []byte(`{}`)}
	closed := agent.Event{Kind: agent.TurnDone}
	transcript := func(item, text string) agent.Event {
		return agent.Event{Kind: agent.Utterance, Role: agent.RolePerson, Item: item, Text: text}
	}
	tests := []struct {
		name    string
		started []string      // items of earlier sentences without a transcript
		events  []agent.Event // events after the agent has ended the call
		want    []string
		end     time.Duration // time from the start to the end of the conversation
	}{
		{name: "transcript arrives", events: []agent.Event{transcript("p", words)}, want: []string{words}, end: time.Second},
		{name: "sentence without words", events: []agent.Event{transcript("p", "")}, end: time.Second},
		{
			name: "transcript of an earlier sentence arrives first",
			events: []agent.Event{
				transcript("before", "Hello?"),
				transcript("p", words),
			},
			want: []string{words},
			end:  time.Second,
		},
		{name: "no transcript arrives", end: lastSentenceTimeout},
		{
			name:    "transcript of the sentence before the last one arrives last",
			started: []string{"before"},
			events:  []agent.Event{transcript("p", "Goodbye."), transcript("before", words)},
			want:    []string{words},
			end:     time.Second,
		},
		{
			name:    "transcript of the sentence before the last one is missing",
			started: []string{"before"},
			events:  []agent.Event{transcript("p", words)},
			want:    []string{words},
			end:     lastSentenceTimeout,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			converse(t, agent.Settings{}, func(k *conversationTest) {
				for _, item := range test.started {
					k.send(agent.Event{Kind: agent.SpeechStarted, Item: item})
				}
				k.send(started, endCall, closed)
				k.pass(time.Second)
				for _, e := range test.events {
					k.send(e)
					k.pass(10 * time.Millisecond)
				}
				k.wantEnd(callstate.NormalClearing, test.end, test.end+50*time.Millisecond)
				if !slices.Equal(k.opted, test.want) {
					t.Errorf("stored opt-outs = %q, want %q", k.opted, test.want)
				}
			})
		})
	}
}

// The model calls no tool. The person's words must be an opt-out, even if their transcript arrives
// after the person hung up.
func TestUtterance_RefusalOfFurtherCallsIsAnOptOut(t *testing.T) {
	t.Parallel()
	const words = "Rufen Sie mich bitte nie wieder an."
	tests := []struct {
		name string
		role string
		late bool
		want []string
	}{
		{name: "refusal during the call", role: agent.RolePerson, want: []string{words}},
		{name: "refusal after the person hung up", role: agent.RolePerson, late: true, want: []string{words}},
		{name: "refusal in the agent's words", role: agent.RoleAgent},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			converse(t, agent.Settings{}, func(k *conversationTest) {
				utterance := agent.Event{Kind: agent.Utterance, Role: test.role, Text: words}
				k.hear(time.Second)
				if test.late {
					k.hangUp()
					k.pass(100 * time.Millisecond)
				}
				k.send(utterance, agent.Event{Kind: agent.Utterance, Role: agent.RoleAgent, Text: "Fine."})
				k.hangUp()
				<-k.over
				if !slices.Equal(k.opted, test.want) {
					t.Errorf("stored opt-outs = %q, want %q", k.opted, test.want)
				}
				if got, want := k.result.OptedOut, len(test.want) > 0; got != want {
					t.Errorf("Result.OptedOut = %v, want %v", got, want)
				}
			})
		})
	}
}
