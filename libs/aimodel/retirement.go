// Package aimodel lists when OpenAI retires the models that agents and the configuration can use.
package aimodel

import (
	"slices"
	"strings"
	"time"
)

// NoticePeriod is the time before a retirement at which the warnings to operators begin.
const NoticePeriod = 60 * 24 * time.Hour

// Retirement describes when OpenAI stops serving a model.
type Retirement struct {
	Model string
	// At is the beginning, in UTC, of the day on which OpenAI shuts the model down.
	At time.Time
	// Successor is the replacement that OpenAI recommends, or empty.
	Successor string
}

// Due reports whether the retirement is at most NoticePeriod away, or in the past.
func (r Retirement) Due(now time.Time) bool { return !now.Before(r.At.Add(-NoticePeriod)) }

// RetirementOf returns the retirement of an OpenAI model, and false if OpenAI has announced no
// retirement. The name must be spelled as OpenAI spells it. Another provider that serves a model of
// the same name can have other dates.
func RetirementOf(model string) (Retirement, bool) {
	name := strings.TrimSpace(model)
	for _, row := range retirements() {
		if !slices.Contains(row.models, name) {
			continue
		}
		at, err := time.Parse(time.DateOnly, row.day)
		if err != nil {
			return Retirement{}, false
		}
		return Retirement{Model: name, At: at, Successor: row.successor}, true
	}
	return Retirement{}, false
}

type row struct {
	day, successor string
	models         []string
}

// retirements lists the models that OpenAI has shut down since the beginning of 2026 or will shut
// down. The days come from the openai-go constants (v3.96.0). The successors come from OpenAI's
// deprecations page (https://developers.openai.com/api/docs/deprecations).
// A test of the dialer compares the days with the openai-go version in go.mod.
func retirements() []row {
	return []row{
		{day: "2026-02-12", models: []string{"codex-mini-latest"}},
		{day: "2026-02-17", models: []string{"chatgpt-4o-latest"}},
		{day: "2026-03-26", models: []string{"gpt-4-0125-preview", "gpt-4-0314", "gpt-4-turbo-preview"}},
		{day: "2026-05-07", models: []string{
			"gpt-4o-audio-preview", "gpt-4o-audio-preview-2024-12-17", "gpt-4o-audio-preview-2025-06-03",
			"gpt-4o-mini-audio-preview", "gpt-4o-mini-audio-preview-2024-12-17",
		}},
		// openai-go has no date for these models. OpenAI shut them down on this day, together with
		// the beta of the Realtime API.
		{day: "2026-05-07", successor: "gpt-realtime-2.1", models: []string{
			"gpt-4o-realtime-preview", "gpt-4o-realtime-preview-2024-12-17", "gpt-4o-realtime-preview-2025-06-03",
		}},
		{day: "2026-05-07", successor: "gpt-realtime-2.1-mini", models: []string{
			"gpt-4o-mini-realtime-preview", "gpt-4o-mini-realtime-preview-2024-12-17",
		}},
		{day: "2026-07-23", models: []string{
			"gpt-4o-mini-search-preview", "gpt-4o-mini-search-preview-2025-03-11", "gpt-4o-search-preview",
			"gpt-4o-search-preview-2025-03-11", "gpt-5-chat-latest", "gpt-5.1-chat-latest", "gpt-5.1-codex",
		}},
		{day: "2026-08-10", models: []string{"gpt-5.2-chat-latest", "gpt-5.3-chat-latest"}},
		{day: "2026-09-28", models: []string{"gpt-3.5-turbo-1106"}},
		{day: "2026-10-23", successor: "gpt-6.1-sol", models: []string{
			"gpt-4", "gpt-4-0613", "gpt-4-1106-preview", "gpt-4-turbo", "gpt-4-turbo-2024-04-09", "gpt-4o-2024-05-13",
			"o1", "o1-2024-12-17", "o3-mini", "o3-mini-2025-01-31",
		}},
		{day: "2026-10-23", successor: "gpt-6.1-terra", models: []string{
			"gpt-3.5-turbo", "gpt-3.5-turbo-0125", "o4-mini", "o4-mini-2025-04-16",
		}},
		{day: "2026-10-23", successor: "gpt-6-luna", models: []string{"gpt-4.1-nano", "gpt-4.1-nano-2025-04-14"}},
		{day: "2026-12-11", successor: "gpt-6.1-sol", models: []string{"gpt-5", "gpt-5-2025-08-07", "o3", "o3-2025-04-16"}},
		{day: "2026-12-11", successor: "gpt-6.1-terra", models: []string{"gpt-5-mini", "gpt-5-mini-2025-08-07"}},
		{day: "2026-12-11", successor: "gpt-6-luna", models: []string{"gpt-5-nano", "gpt-5-nano-2025-08-07"}},
		{day: "2027-01-14", successor: "gpt-6-luna", models: []string{
			"gpt-4.1", "gpt-4.1-2025-04-14", "gpt-4.1-mini", "gpt-4.1-mini-2025-04-14", "gpt-4o", "gpt-4o-2024-08-06",
			"gpt-4o-2024-11-20", "gpt-4o-mini", "gpt-4o-mini-2024-07-18",
		}},
		{day: "2027-01-20", successor: "gpt-realtime-2.1", models: []string{"gpt-realtime", "gpt-realtime-2025-08-28"}},
		{day: "2027-01-20", successor: "gpt-realtime-2.1-mini", models: []string{
			"gpt-realtime-mini", "gpt-realtime-mini-2025-12-15",
		}},
		{day: "2027-01-20", models: []string{"gpt-audio-mini", "gpt-audio-mini-2025-12-15"}},
		{day: "2027-02-26", successor: "gpt-transcribe", models: []string{
			"gpt-4o-mini-transcribe", "gpt-4o-mini-transcribe-2025-12-15", "gpt-4o-transcribe",
			"gpt-4o-transcribe-diarize", "whisper-1",
		}},
		{day: "2027-04-01", models: []string{
			"gpt-5.1", "gpt-5.1-2025-11-13", "gpt-5.4-nano", "gpt-5.4-nano-2026-03-17",
		}},
	}
}
