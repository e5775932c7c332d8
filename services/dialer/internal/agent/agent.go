// Package agent owns the conversation: what the agent answers to what the person says, and what it makes of the call
// afterwards. This agent is scripted and needs no model; a session is nothing but its turns, so any replica can carry it on.
package agent

import (
	"errors"
	"strings"
	"time"
)

// Roles of a turn.
const (
	RolePerson = "person"
	RoleAgent  = "agent"
)

// Turn is one thing said.
type Turn struct {
	Role string    `json:"role"`
	Text string    `json:"text"`
	At   time.Time `json:"at"`
}

// ErrBroken says that the agent cannot go on: the call is to be hung up.
var ErrBroken = errors.New("the agent broke")

// Session is one conversation.
type Session struct{ turns []Turn }

// Resume carries a conversation on from its turns so far; none begins one.
func Resume(turns []Turn) *Session { return &Session{turns: turns} }

// Turns is the conversation so far, in the order in which it was said.
func (s *Session) Turns() []Turn { return s.turns }

// Hear takes one line of the person's and answers it. optOut says that the person asked, in this line, not to be called again. On ErrBroken the line
// is kept and nothing was answered.
func (s *Session) Hear(text string, at time.Time) (optOut bool, err error) {
	s.turns = append(s.turns, Turn{RolePerson, text, at})
	optOut = asksNeverAgain(text)
	reply := replyTo(text)
	if reply == "" {
		return optOut, ErrBroken
	}
	if !isVoicemail(text) { // nobody to talk to
		s.turns = append(s.turns, Turn{RoleAgent, reply, at})
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
