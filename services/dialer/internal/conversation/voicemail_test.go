package conversation

import (
	"testing"
	"time"

	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/callstate"
)

// The model also answers the machine's greeting, before or after the message. The mailbox must
// contain only the message.
func TestVoicemail_MailboxReceivesOnlyTheMessage(t *testing.T) {
	t.Parallel()
	message := []agent.Event{
		{Kind: agent.Audio, Item: "message", Audio: tone(2 * time.Second), Keep: true, Asked: true},
		{Kind: agent.ItemDone, Item: "message"},
		{Kind: agent.TurnDone},
	}
	answer := []agent.Event{
		{Kind: agent.Audio, Item: "answer", Audio: tone(3 * time.Second)},
		{Kind: agent.ItemDone, Item: "answer"},
		{Kind: agent.Utterance, Role: agent.RoleAgent, Item: "answer", Text: "Nice to meet you."},
		{Kind: agent.TurnDone},
	}
	unlisted := []agent.Event{
		{Kind: agent.ToolCall, Tool: agent.ToolEndCall, ID: "end", Args: []byte(`{"outcome":"left a message"}`)},
		{Kind: agent.TurnDone},
	}
	tests := []struct {
		name   string
		events [][]agent.Event
	}{
		{name: "answer before the message", events: [][]agent.Event{answer, message}},
		{name: "answer after the message", events: [][]agent.Event{message[:2], answer, message[2:]}},
		{name: "unlisted outcome before the message", events: [][]agent.Event{unlisted, message}},
		{name: "unlisted outcome during the message", events: [][]agent.Event{message[:1], unlisted, message[1:]}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			settings := agent.Settings{OnVoicemail: agent.VoicemailMessage, Message: "Please call back."}
			converse(t, settings, func(k *conversationTest) {
				k.fakeDetector.next = Beep
				k.hear(20 * time.Millisecond)
				for _, events := range test.events {
					if k.isOver() {
						break // the check of the audio below reports this failure
					}
					k.send(events...)
				}
				<-k.over
				if k.result.Cause != callstate.NormalClearing {
					t.Errorf("cause = %q, want %q", k.result.Cause, callstate.NormalClearing)
				}
				if got, want := k.heardAudio(), 2*time.Second; got != want {
					t.Errorf("audio in the mailbox = %v, want %v", got, want)
				}
				if len(k.result.Turns) != 0 {
					t.Errorf("turns = %v, want none", k.result.Turns)
				}
			})
		})
	}
}
