package agent

import (
	"encoding/json"
	"fmt"
)

// maxTranscript is the maximum size of the transcript in an event, in bytes. See
// docs/reference/api/calls.md.
const maxTranscript = 256 << 10

// Transcript returns the turns as JSON: {"turns":[{"role","text","at"}]}. Above 256 KiB, it cuts
// the transcript between two turns and adds "truncated": true. If there are no turns, it returns
// nil.
func Transcript(turns []Turn) ([]byte, error) {
	if len(turns) == 0 {
		return nil, nil
	}
	var kept []json.RawMessage
	size, truncated := 64, false
	for _, turn := range turns {
		one, err := json.Marshal(turn)
		if err != nil {
			return nil, fmt.Errorf("encode turn: %w", err)
		}
		if size += len(one) + 1; size > maxTranscript {
			truncated = true
			break
		}
		kept = append(kept, one)
	}
	if kept == nil {
		kept = []json.RawMessage{}
	}
	whole, err := json.Marshal(struct {
		Turns     []json.RawMessage `json:"turns"`
		Truncated bool              `json:"truncated,omitempty"`
	}{kept, truncated})
	if err != nil {
		return nil, fmt.Errorf("encode transcript: %w", err)
	}
	return whole, nil
}
