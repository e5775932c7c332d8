package agents

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
)

func body(t *testing.T, text string) map[string]json.RawMessage {
	t.Helper()
	var b map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestNew_ErrorsNameTheField(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, body, field string }{
		{"no name", `{}`, "name"},
		{"an empty name", `{"name":" "}`, "name"},
		{"a null name", `{"name":null}`, "name"},
		{"a name above the limit", `{"name":"` + strings.Repeat("x", 201) + `"}`, "name"},
		{"a caller id without plus", `{"name":"a","from_number":"15005550006"}`, "from_number"},
		{"a call length of 0 seconds", `{"name":"a","max_call_seconds":0}`, "max_call_seconds"},
		{"a call length over four hours", `{"name":"a","max_call_seconds":14401}`, "max_call_seconds"},
		{"a call length that is no whole number", `{"name":"a","max_call_seconds":1.5}`, "max_call_seconds"},
		{"instructions that are no string", `{"name":"a","instructions":5}`, "instructions"},
		{"outcomes that are no list", `{"name":"a","outcomes":"yes"}`, "outcomes"},
		{"a repeated outcome", `{"name":"a","outcomes":["yes","yes"]}`, "outcomes"},
		{"an empty outcome", `{"name":"a","outcomes":[" "]}`, "outcomes"},
		{"too many outcomes", `{"name":"a","outcomes":["` + strings.Repeat(`x","`, 50) + `y"]}`, "outcomes"},
		{"an unknown kind", `{"name":"a","kind":"human"}`, "kind"},
		{"a kind that is no string", `{"name":"a","kind":1}`, "kind"},
		{"kind media_ws without media_url", `{"name":"a","kind":"media_ws"}`, "media_url"},
		{"media_url without TLS", `{"name":"a","kind":"media_ws","media_url":"ws://a.example/x"}`, "media_url"},
		{"media_url with a password", `{"name":"a","media_url":"wss://u:p@a.example/x"}`, "media_url"},
		{"base_url that is no WebSocket URL", `{"name":"a","base_url":"https://a.example"}`, "base_url"},
		{"an unknown on_voicemail", `{"name":"a","on_voicemail":"sing"}`, "on_voicemail"},
		{"leave_message without voicemail_message", `{"name":"a","on_voicemail":"leave_message"}`, "voicemail_message"},
		{"a language that is no language tag", `{"name":"a","language":"English please"}`, "language"},
		{"silence_seconds below the minimum", `{"name":"a","silence_seconds":4}`, "silence_seconds"},
		{"recording.off that is no boolean", `{"name":"a","recording":{"off":"yes"}}`, "recording"},
		{"recording.notice above the limit",
			`{"name":"a","recording":{"notice":"` + strings.Repeat("x", 2001) + `"}}`, "recording.notice"},
		{"a blank off_reason", `{"name":"a","disclosure":{"off_reason":"  "}}`, "disclosure.off_reason"},
		{"a disclosure with text and off_reason", `{"name":"a","disclosure":{"off_reason":"x","text":"y"}}`, "disclosure"},
		{"a disclosure that is no object", `{"name":"a","disclosure":false}`, "disclosure"},
		{"a transfer to an invalid number", `{"name":"a","transfers":{"sales":"5"}}`, "transfers"},
		{"a setting whose name has another case", `{"name":"a","Media_URL":"ws://a.example"}`, "Media_URL"},
		{"a summary that is no object", `{"name":"a","summary":"short"}`, "summary"},
		{"a summary model without TLS", `{"name":"a","summary":{"base_url":"http://a.example/v1"}}`, "summary.base_url"},
		{"a script that is no object", `{"name":"a","script":5}`, "script"},
		{"a tone above the limit", `{"name":"a","script":{"tone_hz":4000}}`, "script"},
		{"a transfer to a premium number", `{"name":"a","transfers":{"sales":"+19005550100"}}`, "transfers"},
		{"a greeting above the limit", `{"name":"a","greeting":"` + strings.Repeat("x", 2001) + `"}`, "greeting"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := New(uuid.New(), uuid.New(), body(t, tt.body))
			var refusal *apierr.Error
			if !errors.As(err, &refusal) {
				t.Fatalf("err = %v, want a %T", err, refusal)
			}
			if refusal.Code != "validation_error" {
				t.Errorf("err: refusal.Code = %q, want \"validation_error\"", refusal.Code)
			}
			if !strings.HasPrefix(refusal.Message, tt.field+" ") {
				t.Errorf("err: refusal.Message = %q, want it to begin with %q", refusal.Message, tt.field+" ")
			}
		})
	}
}

func TestChange_MergesSettingsAndRaisesTheVersion(t *testing.T) {
	t.Parallel()
	a, err := New(uuid.New(), uuid.New(), body(t, `{"name":"Ada","from_number":"+15005550006","max_call_seconds":60,"voice":"calm","speed":2,"id":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	if err = a.Change(body(t, `{"from_number":null,"max_call_seconds":null,"speed":null,"instructions":"Be brief.","outcomes":["yes","no"]}`)); err != nil {
		t.Fatal(err)
	}
	ev, err := a.Event(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	agent := ev.GetAgent()
	if ev.GetVersion() != 2 {
		t.Errorf("event: ev.GetVersion() = %v, want 2", ev.GetVersion())
	}
	if agent.GetName() != "Ada" {
		t.Errorf("agent.GetName() = %q, want \"Ada\"", agent.GetName())
	}
	if agent.GetFromE164() != "" {
		t.Errorf("agent.GetFromE164() = %q, want \"\"", agent.GetFromE164())
	}
	if agent.GetMaxCallSeconds() != DefaultMaxCallSeconds {
		t.Errorf("agent.GetMaxCallSeconds() = %v, want %v", agent.GetMaxCallSeconds(), DefaultMaxCallSeconds)
	}
	if agent.GetVoice() != "calm" {
		t.Errorf("agent.GetVoice() = %q, want \"calm\"", agent.GetVoice())
	}
	if agent.GetInstructions() != "Be brief." {
		t.Errorf("agent.GetInstructions() = %q, want \"Be brief.\"", agent.GetInstructions())
	}
	if len(agent.GetOutcomes()) != 2 {
		t.Errorf("agent: length of agent.GetOutcomes() = %v, want 2", len(agent.GetOutcomes()))
	}
	if got, want := string(a.Settings), `{"instructions":"Be brief.","outcomes":["yes","no"],"voice":"calm"}`; got != want {
		t.Errorf("settings = %s, want %s", got, want)
	}
	a.Delete(time.Now())
	ev, err = a.Event(time.Now())
	if err != nil {
		t.Fatalf("event of a deleted agent: %v", err)
	}
	if !ev.GetAgent().GetDeleted() {
		t.Errorf("event of a deleted agent: ev.GetAgent().GetDeleted() = false, want true")
	}
	if ev.GetVersion() != 3 {
		t.Errorf("event of a deleted agent: ev.GetVersion() = %v, want 3", ev.GetVersion())
	}
}
