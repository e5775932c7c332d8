package realtime

import (
	"encoding/json"
	"testing"
)

func TestNewTranscription_SetsTheLanguageFieldOfTheModel(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, model, language, want string }{
		{
			name: "model with a list of languages", model: "gpt-transcribe", language: "de-CH",
			want: `{"model":"gpt-transcribe","languages":["de"]}`,
		},
		{
			name: "streaming model with a list of languages", model: "gpt-live-transcribe", language: "EN",
			want: `{"model":"gpt-live-transcribe","languages":["en"]}`,
		},
		{
			name: "model with one language", model: "gpt-realtime-whisper", language: "de-CH",
			want: `{"model":"gpt-realtime-whisper","language":"de"}`,
		},
		{
			name: "another provider's model", model: "whisper-large", language: "fr",
			want: `{"model":"whisper-large","language":"fr"}`,
		},
		{name: "no language", model: "gpt-transcribe", want: `{"model":"gpt-transcribe"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := json.Marshal(newTranscription(tt.model, tt.language))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.want {
				t.Errorf("newTranscription(%q, %q) = %s, want %s", tt.model, tt.language, got, tt.want)
			}
		})
	}
}
