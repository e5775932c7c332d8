package agent

import (
	"strings"
	"time"
)

// Conversation is a text conversation of the scripted agent, which uses no model. Its whole state
// is in its turns, so any replica can continue the conversation. It reads no clock.
type Conversation struct{ turns []Turn }

// Resume continues a conversation from its turns. If turns is nil, a new conversation starts.
func Resume(turns []Turn) *Conversation { return &Conversation{turns: turns} }

// Turns returns all turns so far, oldest first.
func (s *Conversation) Turns() []Turn { return s.turns }

// Hear adds an utterance of the person, and the agent's reply, to the turns. optOut is true if the
// person asked not to be called again. ErrBroken means that the agent gave no reply; optOut is
// valid even then.
func (s *Conversation) Hear(text string, at time.Time) (optOut bool, err error) {
	s.turns = append(s.turns, Turn{Role: RolePerson, Text: text, At: at})
	optOut = asksNeverAgain(text)
	reply := replyTo(text)
	if reply == "" {
		return optOut, ErrBroken
	}
	if !isVoicemail(text) { // an answering machine gets no reply
		s.turns = append(s.turns, Turn{Role: RoleAgent, Text: reply, At: at})
	}
	return optOut, nil
}

func replyTo(text string) string {
	lower := strings.ToLower(text)
	switch {
	case strings.HasPrefix(lower, "[an unbearable noise"):
		return ""
	case asksNeverAgain(text):
		return "Understood. I have noted that you do not wish to be called again. Goodbye."
	case asksCallBack(text):
		return "Of course. We will call you back tomorrow at ten. Goodbye."
	case strings.Contains(lower, "interested in"):
		return "That is exactly what we help with. What would hold you back?"
	case strings.Contains(lower, "worried about"):
		return "I understand. Most of our customers asked the same, and we take care of it for them."
	case strings.Contains(lower, "goodbye"):
		return "You will have the details today. Thank you for your time, goodbye."
	}
	return "Good day, I am the assistant that was asked to call you. May I tell you briefly what it is about?"
}

func asksNeverAgain(text string) bool {
	lower := strings.ToLower(text)
	for _, phrase := range []string{"never call me", "do not call me again", "don't call me again", "take me off your list", "stop calling"} {
		if strings.Contains(lower, phrase) {
			return true
		}
	}
	return false
}

func asksCallBack(text string) bool {
	return strings.Contains(strings.ToLower(text), "call me back")
}

func isVoicemail(text string) bool {
	lower := strings.ToLower(text)
	return strings.Contains(lower, "voicemail") || strings.Contains(lower, "after the tone")
}
