package summary

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"ringfence.dev/services/dialer/internal/agent"
)

const (
	// Longer values in an answer are cut to maxText characters of a sentence, maxName characters of a
	// name, and maxList entries of a list.
	maxText, maxName, maxList = 500, 200, 10
	// maxAhead is how far in the future a call can be scheduled
	// (docs/reference/api/call-requests.md#scheduled_for).
	maxAhead = 366 * 24 * time.Hour
)

type answer struct {
	Outcome       string   `json:"outcome"`
	Confidence    *float64 `json:"confidence"`
	NextAction    string   `json:"next_action"`
	BusinessType  *string  `json:"business_type"`
	CustomerName  *string  `json:"customer_name"`
	KeyInterests  []string `json:"key_interests"`
	KeyObjections []string `json:"key_objections"`
	ScheduledFor  any      `json:"scheduled_for"`
}

// parseAnswer reads the JSON object in the model's text, which can be within a code block. An
// outcome that is not in the agent's list is an error. A time that is invalid or in the past is
// omitted.
func parseAnswer(text string, c Call) (*agent.Summary, error) {
	begin, end := strings.IndexByte(text, '{'), strings.LastIndexByte(text, '}')
	if begin < 0 || end < begin {
		return nil, errors.New("the model's answer contains no JSON object")
	}
	var a answer
	if err := json.Unmarshal([]byte(text[begin:end+1]), &a); err != nil {
		return nil, fmt.Errorf("read the model's answer: %w", err)
	}
	if !slices.Contains(c.Settings.OutcomeList(), a.Outcome) {
		return nil, errors.New("the outcome in the model's answer is not in the agent's list")
	}
	summary := agent.Summary{
		Outcome: a.Outcome, NextAction: cleanText(a.NextAction, maxText), BusinessType: optionalText(a.BusinessType),
		CustomerName: optionalText(a.CustomerName),
		KeyInterests: cleanList(a.KeyInterests), KeyObjections: cleanList(a.KeyObjections),
	}
	if a.Confidence != nil {
		summary.Confidence = min(max(*a.Confidence, 0), 1)
	}
	if at, ok := c.scheduledTime(a.ScheduledFor); ok {
		summary.ScheduledFor = &at
	}
	if c.Outcome != "" {
		summary.Outcome = c.Outcome
	}
	return &summary, nil
}

// scheduledTime returns the agreed time of the next contact, with the UTC offset of the person's
// time zone. If a tool call has stored a time, that time replaces the model's value. A value
// without an offset is in the person's time zone.
func (c Call) scheduledTime(value any) (string, bool) {
	if c.CallbackAt != nil {
		return c.CallbackAt.In(c.zone()).Format(agent.TimeLayout), true
	}
	text, _ := value.(string)
	at, err := time.Parse(time.RFC3339, text)
	for _, local := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04"} {
		if err != nil {
			at, err = time.ParseInLocation(local, text, c.zone())
		}
	}
	if err != nil || !at.After(c.EndedAt) || at.Sub(c.EndedAt) > maxAhead {
		return "", false
	}
	return at.In(c.zone()).Format(agent.TimeLayout), true
}

func optionalText(text *string) *string {
	if text == nil {
		return nil
	}
	if kept := cleanText(*text, maxName); kept != "" {
		return &kept
	}
	return nil
}

func cleanList(texts []string) []string {
	kept := []string{}
	for _, text := range texts {
		if text = cleanText(text, maxName); text != "" && len(kept) < maxList {
			kept = append(kept, text)
		}
	}
	return kept
}

// cleanText returns the text as one line without control characters, cut to maxLength characters.
func cleanText(text string, maxLength int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, text)
	runes := []rune(strings.Join(strings.Fields(text), " "))
	return string(runes[:min(len(runes), maxLength)])
}
