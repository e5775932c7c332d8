package realtime_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/agent/modeltest"
)

func TestOpen_SendsNoiseReductionAndTurnDetection(t *testing.T) {
	t.Parallel()
	threshold, padding, silence, idle := 0.6, int64(200), int64(700), int64(8000)
	tests := []struct {
		name           string
		settings       agent.Settings
		noise          any
		before, answer map[string]any // turn_detection during the disclosure, and after it
	}{
		{
			name:   "defaults",
			before: map[string]any{"type": "server_vad", "create_response": false, "interrupt_response": false},
			answer: map[string]any{"type": "server_vad", "create_response": true, "interrupt_response": true},
		},
		{
			name: "server_vad",
			settings: agent.Settings{
				NoiseReduction: &agent.NoiseReduction{Type: "far_field"},
				TurnDetection: &agent.TurnDetection{
					Type: "server_vad", Threshold: &threshold, PrefixPaddingMS: &padding, SilenceDurationMS: &silence,
					IdleTimeoutMS: &idle,
				},
			},
			noise: map[string]any{"type": "far_field"},
			before: map[string]any{
				"type": "server_vad", "threshold": 0.6, "prefix_padding_ms": 200.0, "silence_duration_ms": 700.0,
				"create_response": false, "interrupt_response": false,
			},
			answer: map[string]any{
				"type": "server_vad", "threshold": 0.6, "prefix_padding_ms": 200.0, "silence_duration_ms": 700.0,
				"idle_timeout_ms": 8000.0,
				"create_response": true, "interrupt_response": true,
			},
		},
		{
			name:     "semantic_vad",
			settings: agent.Settings{TurnDetection: &agent.TurnDetection{Type: "semantic_vad", Eagerness: "low"}},
			before: map[string]any{
				"type": "semantic_vad", "eagerness": "low", "create_response": false, "interrupt_response": false,
			},
			answer: map[string]any{
				"type": "semantic_vad", "eagerness": "low", "create_response": true, "interrupt_response": true,
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, modeltest.RealtimeOptions{Key: "operator"})
			l := open(t, server, tt.settings)
			l.Begin()
			l.wait(agent.TurnDone, 1)
			for n, want := range []map[string]any{tt.before, tt.answer} {
				update := waitReceived(t, server, "session.update", n+1)
				if diff := cmp.Diff(want, dig(update, "session", "audio", "input", "turn_detection")); diff != "" {
					t.Errorf("turn_detection of session.update %d (-want +got):\n%s", n+1, diff)
				}
				if diff := cmp.Diff(tt.noise, dig(update, "session", "audio", "input", "noise_reduction")); diff != "" {
					t.Errorf("noise_reduction of session.update %d (-want +got):\n%s", n+1, diff)
				}
			}
		})
	}
}

func TestReadSettings_DecodesNoiseReductionAndTurnDetection(t *testing.T) {
	t.Parallel()
	got, err := agent.ReadSettings(
		[]byte(`{"kind":"openai_realtime","noise_reduction":{"type":"near_field"},` +
			`"turn_detection":{"type":"server_vad","threshold":0.4}}`))
	if err != nil {
		t.Fatalf("ReadSettings: %v", err)
	}
	threshold := 0.4
	if diff := cmp.Diff(&agent.TurnDetection{Type: "server_vad", Threshold: &threshold}, got.TurnDetection); diff != "" {
		t.Errorf("TurnDetection (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&agent.NoiseReduction{Type: "near_field"}, got.NoiseReduction); diff != "" {
		t.Errorf("NoiseReduction (-want +got):\n%s", diff)
	}
	var again agent.TurnDetection
	text, err := json.Marshal(got.TurnDetection)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*got.TurnDetection, again); diff != "" {
		t.Errorf("TurnDetection after a round trip (-want +got):\n%s", diff)
	}
}
