package agents

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
)

func TestNew_ValidatesTurnDetectionAndNoiseReduction(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, settings string
		field          string
	}{
		{name: "noise reduction", settings: `"noise_reduction":{"type":"far_field"}`},
		{name: "unknown noise reduction", settings: `"noise_reduction":{"type":"quiet"}`, field: "noise_reduction.type"},
		{name: "noise reduction without a type", settings: `"noise_reduction":{}`, field: "noise_reduction.type"},
		{name: "noise reduction as a string", settings: `"noise_reduction":"far_field"`, field: "noise_reduction"},
		{
			name:     "noise reduction with an unknown member",
			settings: `"noise_reduction":{"type":"far_field","level":1}`, field: "noise_reduction",
		},
		{
			name: "noise_reduction in another case", settings: `"Noise_Reduction":{"type":"far_field"}`,
			field: "Noise_Reduction",
		},
		{
			name: "server_vad",
			settings: `"turn_detection":{"type":"server_vad","threshold":0.6,"prefix_padding_ms":200,` +
				`"silence_duration_ms":700,"idle_timeout_ms":8000}`,
		},
		{
			name: "server_vad at the limits",
			settings: `"turn_detection":{"type":"server_vad","threshold":1,"prefix_padding_ms":0,` +
				`"silence_duration_ms":10000,"idle_timeout_ms":30000}`,
		},
		{name: "semantic_vad", settings: `"turn_detection":{"type":"semantic_vad","eagerness":"low"}`},
		{name: "no type", settings: `"turn_detection":{"threshold":0.5}`, field: "turn_detection.type"},
		{name: "unknown type", settings: `"turn_detection":{"type":"none"}`, field: "turn_detection.type"},
		{name: "turn_detection that is no object", settings: `"turn_detection":true`, field: "turn_detection"},
		{
			name: "threshold above 1", settings: `"turn_detection":{"type":"server_vad","threshold":1.1}`,
			field: "turn_detection.threshold",
		},
		{
			name: "threshold below 0", settings: `"turn_detection":{"type":"server_vad","threshold":-0.1}`,
			field: "turn_detection.threshold",
		},
		{
			name: "negative prefix_padding_ms", settings: `"turn_detection":{"type":"server_vad","prefix_padding_ms":-1}`,
			field: "turn_detection.prefix_padding_ms",
		},
		{
			name: "silence of 0 milliseconds", settings: `"turn_detection":{"type":"server_vad","silence_duration_ms":0}`,
			field: "turn_detection.silence_duration_ms",
		},
		{
			name:     "fraction of a millisecond",
			settings: `"turn_detection":{"type":"server_vad","silence_duration_ms":0.5}`, field: "turn_detection",
		},
		{
			name: "idle timeout below the minimum", settings: `"turn_detection":{"type":"server_vad","idle_timeout_ms":4999}`,
			field: "turn_detection.idle_timeout_ms",
		},
		{
			name:     "server_vad with the eagerness of semantic_vad",
			settings: `"turn_detection":{"type":"server_vad","eagerness":"low"}`,
			field:    "turn_detection.eagerness",
		},
		{
			name:     "semantic_vad with the threshold of server_vad",
			settings: `"turn_detection":{"type":"semantic_vad","threshold":0.5}`,
			field:    "turn_detection.threshold",
		},
		{
			name:     "semantic_vad with the idle timeout of server_vad",
			settings: `"turn_detection":{"type":"semantic_vad","idle_timeout_ms":6000}`,
			field:    "turn_detection.idle_timeout_ms",
		},
		{
			name: "unknown eagerness", settings: `"turn_detection":{"type":"semantic_vad","eagerness":"very"}`,
			field: "turn_detection.eagerness",
		},
		{
			name:     "a member that the dialer sets",
			settings: `"turn_detection":{"type":"server_vad","create_response":false}`, field: "turn_detection",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := New(uuid.New(), uuid.New(), body(t, `{"name":"a","kind":"openai_realtime",`+tt.settings+`}`))
			if tt.field == "" {
				if err != nil {
					t.Errorf("New = %v, want no error", err)
				}
				return
			}
			var refusal *apierr.Error
			if !errors.As(err, &refusal) {
				t.Fatalf("New = %v, want a refusal", err)
			}
			if refusal.Code != "validation_error" {
				t.Errorf("code = %s, want validation_error", refusal.Code)
			}
			if !strings.HasPrefix(refusal.Message, tt.field+" ") {
				t.Errorf("message = %q, want one that begins with %q", refusal.Message, tt.field)
			}
		})
	}
}

func TestEvent_ContainsTurnDetection(t *testing.T) {
	t.Parallel()
	const settings = `{"kind":"openai_realtime","noise_reduction":{"type":"near_field"},` +
		`"turn_detection":{"type":"semantic_vad","eagerness":"high"}}`
	a, err := New(uuid.New(), uuid.New(), body(t, `{"name":"a",`+settings[1:]))
	if err != nil {
		t.Fatal(err)
	}
	event, err := a.Event(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(settings, string(event.GetAgent().GetSettingsJson())); diff != "" {
		t.Errorf("settings of the event (-want +got):\n%s", diff)
	}
}

func TestNew_ValidatesOpenAILiveAgent(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, settings, field string }{
		{name: "only the kind", settings: ``},
		{
			name:     "model and URL of the agent",
			settings: `,"model":"gpt-live-1","base_url":"wss://live.example/v1/live/sessions"`,
		},
		{name: "longest permitted call", settings: `,"max_call_seconds":6900`},
		{name: "call longer than the session", settings: `,"max_call_seconds":6901`, field: "max_call_seconds"},
		{name: "turn detection", settings: `,"turn_detection":{"type":"server_vad"}`, field: "turn_detection"},
		{name: "noise reduction", settings: `,"noise_reduction":{"type":"far_field"}`, field: "noise_reduction"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, err := New(uuid.New(), uuid.New(), body(t, `{"name":"a","kind":"openai_live"`+tt.settings+`}`))
			if tt.field == "" {
				if err != nil {
					t.Fatalf("New = %v, want no error", err)
				}
				event, err := a.Event(time.Now())
				if err != nil {
					t.Fatal(err)
				}
				if got := string(event.GetAgent().GetSettingsJson()); !strings.Contains(got, `"kind":"openai_live"`) {
					t.Errorf("settings of the event = %s, want the kind openai_live", got)
				}
				return
			}
			var refusal *apierr.Error
			if !errors.As(err, &refusal) {
				t.Fatalf("New = %v, want a refusal", err)
			}
			if !strings.HasPrefix(refusal.Message, tt.field+" ") {
				t.Errorf("message = %q, want one that begins with %q", refusal.Message, tt.field)
			}
		})
	}
}
