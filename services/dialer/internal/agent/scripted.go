// Package scripted owns the agent that needs no model: what it answers to what the person says, what it makes of the call afterwards, and, on a real
// line, a script of tone and silence. A conversation in words is nothing but its turns, so any replica can carry it on. It reads no clock.

package agent

import (
	"strings"
	"time"
)

// Conversation is one conversation in words.
type Conversation struct{ turns []Turn }

// Resume carries a conversation on from its turns so far; none begins one.
func Resume(turns []Turn) *Conversation { return &Conversation{turns: turns} }

// Turns is the conversation so far, in the order in which it was said.
func (s *Conversation) Turns() []Turn { return s.turns }

// Hear takes one line of the person's and answers it. optOut says that the person asked, in this line, not to be called again. On agent.ErrBroken the line
// is kept and nothing was answered.
func (s *Conversation) Hear(text string, at time.Time) (optOut bool, err error) {
	s.turns = append(s.turns, Turn{Role: RolePerson, Text: text, At: at})
	optOut = asksNeverAgain(text)
	reply := replyTo(text)
	if reply == "" {
		return optOut, ErrBroken
	}
	if !isVoicemail(text) { // nobody to talk to
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
