package conversation

import (
	"strings"
	"time"
	"unicode"

	"ringfence.dev/services/dialer/internal/agent"
)

// disclosureRecord returns how much of the disclosure was played. It returns nil if there is
// neither a disclosure nor a recording notice. It also returns nil if an agent of kind media_ws did
// not mark the disclosure.
func (c *Conversation) disclosureRecord() *agent.DisclosureRecord {
	if c.settings.Disclosure == "" || c.lastDisclosureItem == "" && c.settings.Agent.Kind == agent.MediaWS {
		return nil
	}
	record := &agent.DisclosureRecord{Text: c.settings.Disclosure}
	var last time.Time
	for id, it := range c.transcript.items {
		if id != c.lastDisclosureItem && !it.disclosure || it.began.IsZero() {
			continue
		}
		if record.StartedAt == nil || it.began.Before(*record.StartedAt) {
			record.StartedAt = &it.began
		}
		if it.ended.After(last) {
			last = it.ended
		}
	}
	if record.StartedAt == nil {
		return record
	}
	if end := c.transcript.items[c.lastDisclosureItem]; end != nil && end.complete && end.played >= end.arrived {
		record.FinishedAt = &last
	} else {
		record.CutAt = &last
	}
	return record
}

// rewordedDisclosure returns the agent's transcript of the disclosure if it differs from the text
// that the agent had to speak, and otherwise "". The agent writes the transcript, so it does not
// prove which words the audio contains.
func (c *Conversation) rewordedDisclosure() string {
	if c.settings.Disclosure == "" || c.lastDisclosureItem == "" {
		return ""
	}
	var spoken []string
	for _, w := range c.transcript.entries {
		if it := c.transcript.items[w.item]; it != nil && it.disclosure {
			spoken = append(spoken, w.turn.Text)
		}
	}
	words := strings.Join(spoken, " ")
	if letters(words) == letters(c.settings.Disclosure) {
		return ""
	}
	return words
}

func letters(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, text)
}
