package agents

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
)

func TestNewAndChange_RefuseCallsLongerThanTheModelSession(t *testing.T) {
	t.Parallel()
	const realtime, websocket = `{"name":"Ada","kind":"openai_realtime"}`,
		`{"name":"Ada","kind":"media_ws","media_url":"wss://agent.example/"}`
	tests := []struct {
		name    string
		create  string
		change  string
		refused bool
	}{
		{name: "realtime agent with the longest permitted call",
			create: `{"name":"Ada","kind":"openai_realtime","max_call_seconds":3300}`},
		{
			name:    "realtime agent with a too long call",
			create:  `{"name":"Ada","kind":"openai_realtime","max_call_seconds":3301}`,
			refused: true,
		},
		{
			name:    "websocket agent with a too long call",
			create:  `{"name":"Ada","kind":"media_ws","media_url":"wss://agent.example/","max_call_seconds":14400}`,
			refused: true,
		},
		{name: "scripted agent has no session limit", create: `{"name":"Ada","kind":"scripted","max_call_seconds":14400}`},
		{name: "agent of the default kind has no session limit", create: `{"name":"Ada","max_call_seconds":14400}`},
		{name: "realtime agent changed to a too long call",
			create: realtime, change: `{"max_call_seconds":3600}`, refused: true},
		{name: "websocket agent changed to a too long call",
			create: websocket, change: `{"max_call_seconds":3600}`, refused: true},
		{
			name: "scripted agent with a long call changed to realtime", create: `{"name":"Ada","max_call_seconds":3600}`,
			change: `{"kind":"openai_realtime"}`, refused: true,
		},
		{
			name: "scripted agent changed to realtime with a shorter call", create: `{"name":"Ada","max_call_seconds":3600}`,
			change: `{"kind":"openai_realtime","max_call_seconds":3300}`,
		},
		{name: "realtime agent changed to scripted with a longer call",
			create: realtime, change: `{"kind":null,"max_call_seconds":14400}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a, err := New(uuid.New(), uuid.New(), body(t, test.create))
			if err == nil && test.change != "" {
				err = a.Change(body(t, test.change))
			}
			if !test.refused {
				if err != nil {
					t.Errorf("error = %v, want nil", err)
				}
				return
			}
			var refusal *apierr.Error
			if !errors.As(err, &refusal) {
				t.Fatalf("error = %v, want a validation_error", err)
			}
			if refusal.Code != "validation_error" {
				t.Errorf("code = %q, want validation_error", refusal.Code)
			}
			if !strings.HasPrefix(refusal.Message, "max_call_seconds ") {
				t.Errorf("message = %q, want it to name max_call_seconds", refusal.Message)
			}
			if !strings.Contains(refusal.Message, "at most 3300") {
				t.Errorf("message = %q, want it to name the limit", refusal.Message)
			}
		})
	}
}

// The agent was stored before its kind had a limit for max_call_seconds.
func TestChange_AgentWithATooLongCallLimitCanBeRenamed(t *testing.T) {
	t.Parallel()
	a := Agent{Name: "Ada", MaxCallSeconds: 14400, Settings: []byte(`{"kind":"openai_realtime"}`)}
	if err := a.Change(body(t, `{"name":"Bo"}`)); err != nil {
		t.Errorf("change of the name = %v, want nil", err)
	}
}
