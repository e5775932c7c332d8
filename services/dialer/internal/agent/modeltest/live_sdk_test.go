package modeltest_test

import (
	"encoding/json"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	sdk "github.com/openai/openai-go/v3/live"

	"ringfence.dev/libs/ssrf"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/agent/live"
	"ringfence.dev/services/dialer/internal/agent/modeltest"
)

// converseLive runs a conversation in which the server sends events of every kind that it supports.
func converseLive(t *testing.T) *modeltest.LiveServer {
	t.Helper()
	server := modeltest.NewLive(modeltest.LiveOptions{
		Hears: func(int) string { return "Call me tomorrow." },
		Reply: func(heard string) modeltest.LiveReply {
			switch heard {
			case "Call me tomorrow.":
				return modeltest.LiveReply{
					Text: "One moment.",
					Tool: agent.ToolCallback,
					Args: `{"at":"2026-12-01T09:00:00Z"}`,
				}
			case `{"state":"done"}`:
				return modeltest.LiveReply{Text: "Until tomorrow."}
			}
			return modeltest.LiveReply{Text: "Good day."}
		},
	})
	t.Cleanup(server.Close)
	opener := live.New(live.Config{URL: server.URL, Key: "k", Model: "gpt-live-1", BackendModel: "gpt-6-luna"},
		ssrf.New(nil), nil, slog.New(slog.DiscardHandler))
	session, err := opener.Open(t.Context(),
		agent.Spec{Settings: agent.Settings{Instructions: "Be kind.", Voice: "marin"}})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	session.Begin()
	var loud, hush [agent.FrameBytes]byte
	for i := range hush {
		loud[i], hush[i] = 0x20, 0xff
	}
	line := time.NewTicker(time.Millisecond)
	defer line.Stop()
	speaking := 0
	for {
		select {
		case <-line.C:
			frame := hush
			if speaking > 0 {
				frame, speaking = loud, speaking-1
			}
			session.HearAudio(frame[:])
		case e, open := <-session.Events():
			switch {
			case !open:
				return server
			case e.Kind == agent.Utterance && e.Text == "Good day.":
				speaking = 40
			case e.Kind == agent.ToolCall:
				session.ToolResult(e.ID, json.RawMessage(`{"state":"done"}`))
			case e.Kind == agent.Utterance && e.Text == "Until tomorrow.":
				server.Fail("output_moderated")
				server.End("expired")
			}
		}
	}
}

// Each event of the server must have all fields that openai-go requires, and no unknown fields.
func TestLiveServer_SendsEventsThatTheSDKDecodes(t *testing.T) {
	t.Parallel()
	server := converseLive(t)
	kinds := map[string]bool{}
	for _, message := range server.Sent("") {
		var event sdk.ServerEventUnion
		if err := json.Unmarshal(message, &event); err != nil {
			t.Fatalf("read %s: %v", message, err)
		}
		kinds[event.Type] = true
		variant := event.AsAny()
		if variant == nil {
			t.Errorf("openai-go does not know the event %s", event.Type)
			continue
		}
		checkMembers(t, event.Type, reflect.ValueOf(variant))
	}
	for _, kind := range []string{
		"session.started", "session.input_audio.muted", "session.input_audio.unmuted", "session.commentary.appended",
		"session.instructions.appended", "session.output_audio.delta", "session.output_transcript.delta",
		"session.input_transcript.delta", "session.delegation.created", "response.event", "error", "session.closed",
	} {
		if !kinds[kind] {
			t.Errorf("the conversation has no event %s", kind)
		}
	}
}

func TestLiveServer_AcceptsTheEventsOfTheDialer(t *testing.T) {
	t.Parallel()
	server := converseLive(t)
	for _, fault := range server.Sent("error") {
		if !strings.Contains(string(fault), "output_moderated") {
			t.Errorf("the server refused an event of the dialer: %s", fault)
		}
	}
	if got := len(server.Received("response.item.create")); got != 1 {
		t.Errorf("results of tools = %d, want 1", got)
	}
}

// The real server refuses unknown fields, so the fake must do so too.
func TestLiveServer_RefusesUnknownFields(t *testing.T) {
	t.Parallel()
	server := modeltest.NewLive(modeltest.LiveOptions{})
	t.Cleanup(server.Close)
	// the library closes the body
	conn, _, err := websocket.Dial(t.Context(), server.URL, nil) //nolint:bodyclose
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	defer func() { _ = conn.CloseNow() }()
	const start = `{"type":"session.start","session":{"model":"gpt-live-1","temperature":1,` +
		`"audio":{"format":{"type":"audio/pcmu","rate":8000}}}}`
	if err := conn.Write(t.Context(), websocket.MessageText, []byte(start)); err != nil {
		t.Fatalf("write: %v", err)
	}
	_, answer, err := conn.Read(t.Context())
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	var event struct {
		Type  string
		Error struct{ Code string }
	}
	if err := json.Unmarshal(answer, &event); err != nil {
		t.Fatalf("read %s: %v", answer, err)
	}
	if event.Error.Code != "unknown_parameter" {
		t.Errorf("answer = %s, want the error unknown_parameter", answer)
	}
}

func checkMembers(t *testing.T, name string, value reflect.Value) {
	t.Helper()
	if value.Kind() != reflect.Struct {
		return
	}
	seen := value.FieldByName("JSON")
	if !seen.IsValid() {
		return
	}
	for i := range value.NumField() {
		field := value.Type().Field(i)
		if !strings.Contains(field.Tag.Get("api"), "required") {
			continue
		}
		if raw := seen.FieldByName(field.Name).MethodByName("Raw"); raw.Call(nil)[0].String() == "" {
			t.Errorf("%s has no member %s, which is required", name, field.Name)
		}
		if inner := value.Field(i); inner.Kind() == reflect.Struct {
			checkMembers(t, name+"."+field.Name, inner)
		}
	}
	if extra := seen.FieldByName("ExtraFields"); extra.IsValid() && extra.Len() > 0 {
		t.Errorf("%s has members that openai-go does not know: %v", name, extra.MapKeys())
	}
}
