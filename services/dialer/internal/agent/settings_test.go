package agent_test

import (
	"slices"
	"strings"
	"testing"

	"ringfence.dev/services/dialer/internal/agent"
)

func TestReadSettings_InvalidValuesAreRefused(t *testing.T) {
	t.Parallel()
	for text, fault := range map[string]string{
		``: "", `{}`: "", `{"kind":"openai_realtime","unknown":1}`: "", `{"kind":"media_ws","media_url":"wss://a.example"}`: "",
		`{"kind":"robot"}`: "kind", `{"kind":7}`: "kind", `[]`: "settings", `{"on_voicemail":"sing"}`: "on_voicemail", `{"kind":"media_ws"}`: "media_url",
		`{"transfers":{"desk":"+41443334455"}}`: "", `{"transfers":{"desk":"1900"}}`: "transfers", `{"transfers":{"":"+41443334455"}}`: "transfers",
		`{"silence_seconds":-1}`: "silence_seconds", `{"script":{"tone_hz":4000}}`: "range", `{"script":{"tone_millis":60001}}`: "minute",
	} {
		_, err := agent.ReadSettings([]byte(text))
		if (err != nil) != (fault != "") {
			t.Errorf("ReadSettings error = %v, want an error = %v", err, (fault != ""))
		} else if err != nil && !strings.Contains(err.Error(), fault) {
			t.Errorf("err = %q, want it to contain %q", err.Error(), fault)
		}
	}
}

func TestDisclosureText_DependsOnLanguageAndSettings(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, settings, want string
		known                bool
	}{
		{"default: the disclosure is on", `{}`, "Hello, you are talking to an AI assistant.", true},
		{
			"sentence in the agent's language", `{"language":"de-CH"}`, "Guten Tag, Sie sprechen mit einem KI-Assistenten.",
			true,
		},
		{"language without a sentence: English", `{"language":"eo"}`, "Hello, you are talking to an AI assistant.", false},
		{"text from the settings", `{"language":"eo","disclosure":{"text":"Mi estas AI."}}`, "Mi estas AI.", true},
		{
			"empty reason: the disclosure is on", `{"disclosure":{"off_reason":"  "}}`,
			"Hello, you are talking to an AI assistant.", true,
		},
		{"turned off with a reason", `{"disclosure":{"off_reason":"staff only, told in person"}}`, "", true},
	} {
		s, err := agent.ReadSettings([]byte(test.settings))
		if err != nil {
			t.Fatal(err)
		}
		if text, known := s.DisclosureText(); text != test.want {
			t.Errorf("%s: text = %v, want %v", test.name, text, test.want)
		} else if known != test.known {
			t.Errorf("%s: known = %v, want %v", test.name, known, test.known)
		}
	}
}

func TestNoticeText_DependsOnKindAndSettings(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, settings, want string
		known                bool
	}{
		{
			"sentence in the agent's language", `{"kind":"openai_realtime","language":"de-CH"}`,
			"Dieses Gespräch wird aufgezeichnet. Wenn Sie das nicht möchten, sagen Sie es bitte.", true,
		},
		{
			"language without a sentence: English", `{"kind":"media_ws","media_url":"wss://x","language":"eo"}`,
			"This call is recorded. If you do not want that, please say so.", false,
		},
		{"text from the settings", `{"kind":"openai_realtime","recording":{"notice":" Taped. "}}`, "Taped.", true},
		{"recording turned off", `{"kind":"openai_realtime","recording":{"notice":"Taped.","off":true}}`, "", true},
		{"agent that cannot speak the notice", `{"kind":"scripted","recording":{"notice":"Taped."}}`, "", true},
		{
			"scripted agent whose tones replace words", `{"script":{"speaks":true}}`,
			"This call is recorded. If you do not want that, please say so.", true,
		},
	} {
		s, err := agent.ReadSettings([]byte(test.settings))
		if err != nil {
			t.Fatal(err)
		}
		if text, known := s.NoticeText(); text != test.want {
			t.Errorf("%s: text = %v, want %v", test.name, text, test.want)
		} else if known != test.known {
			t.Errorf("%s: known = %v, want %v", test.name, known, test.known)
		}
	}
	for words, objects := range map[string]bool{
		"Please STOP recording this.": true, "I don’t want to be recorded": true, "Das möchte ich nicht aufzeichnen lassen": true,
		"I have a broken record player": false, "Put it on record": false, "": false,
	} {
		if agent.ObjectsToRecording(words) != objects {
			t.Errorf("ObjectsToRecording(%q) = %v, want %v", words, !objects, objects)
		}
	}
}

func TestOutcomeList_ContainsTheOutcomesOfTools(t *testing.T) {
	t.Parallel()
	own := agent.Settings{Outcomes: []string{"sold", "opted_out"}}.OutcomeList()
	for _, must := range []string{"sold", "opted_out", "callback_requested", "transferred", "unknown"} {
		if n := len(slices.DeleteFunc(slices.Clone(own), func(o string) bool { return o != must })); n != 1 {
			t.Errorf("%s is %d times in %v, want once", must, n, own)
		}
	}
	if slices.Contains(own, "interested") {
		t.Errorf("%v contains an outcome that the agent does not list", own)
	}
	if len(agent.Settings{}.OutcomeList()) != 12 {
		t.Error("the list of an agent without its own list differs from Outcomes()")
	}
}

func TestVoicemailText_ContainsTheDisclosureOnce(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		settings agent.Settings
		want     string
	}{
		{
			name:     "default disclosure of the language",
			settings: agent.Settings{Language: "de", Message: "Bitte rufen Sie zurück."},
			want:     "Guten Tag, Sie sprechen mit einem KI-Assistenten. Bitte rufen Sie zurück.",
		},
		{
			name:     "disclosure from the settings",
			settings: agent.Settings{Disclosure: agent.Disclosure{Text: "I am an AI."}, Message: "Please call back."},
			want:     "I am an AI. Please call back.",
		},
		{
			name: "turned off with a reason",
			settings: agent.Settings{
				Disclosure: agent.Disclosure{OffReason: "employees"},
				Message:    "Please call back.",
			},
			want: "Please call back.",
		},
		{
			name: "message that contains the disclosure",
			settings: agent.Settings{
				Disclosure: agent.Disclosure{Text: "I am an AI."},
				Message:    "Hi. I am an AI. Call back.",
			},
			want: "Hi. I am an AI. Call back.",
		},
	}
	for _, test := range tests {
		if got := test.settings.VoicemailText(); got != test.want {
			t.Errorf("%s: VoicemailText() = %q, want %q", test.name, got, test.want)
		}
	}
}
