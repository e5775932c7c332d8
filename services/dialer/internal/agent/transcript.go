package agent

import (
	"encoding/json"
	"fmt"
)

// maxTranscript bounds the transcript in a fact, in bytes (contract.md §5).
const maxTranscript = 256 << 10

// Transcript is the JSON form of a conversation: {"turns":[{"role","text","at"}]}, cut at a turn at 256 KiB, then with
// "truncated": true. No turns give nothing.
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
