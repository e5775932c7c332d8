package modeltest_test

import (
	"context"
	"encoding/json"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	sdk "github.com/openai/openai-go/v3/realtime"

	"ringfence.dev/libs/ssrf"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/agent/modeltest"
	"ringfence.dev/services/dialer/internal/agent/realtime"
)

// converse runs a conversation that contains every event that the client and the fake support.
func converse(t *testing.T) *modeltest.RealtimeServer {
	t.Helper()
	server := modeltest.NewRealtime(
		modeltest.RealtimeOptions{Reply: func(heard, asked string, _ int) modeltest.RealtimeReply {
			if strings.Contains(heard, "desk") {
				return modeltest.RealtimeReply{Text: "One moment.", Tool: agent.ToolTransfer, Args: `{"to":"desk"}`}
			}
			return modeltest.RealtimeReply{Text: modeltest.QuotedRealtime(asked, "Good day.")}
		}},
	)
	t.Cleanup(server.Close)
	o := realtime.New(
		realtime.Config{URL: server.URL, Key: "k", Model: "gpt-realtime", TranscriptionModel: "gpt-4o-mini-transcribe"},
		ssrf.New(nil),
		nil,
	)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s, err := o.Open(ctx, agent.Spec{Settings: agent.Settings{
		Instructions: "Be kind.", Voice: "marin", Language: "fr", Greeting: "Bonjour.", Transfers: map[string]string{"desk": "+33100000000"},
		NoiseReduction: &agent.NoiseReduction{Type: "far_field"},
		TurnDetection: &agent.TurnDetection{
			Type: "server_vad", Threshold: new(0.6), PrefixPaddingMS: new(int64(200)), SilenceDurationMS: new(int64(700)),
			IdleTimeoutMS: new(int64(8000)),
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.Begin()
	s.HearAudio(make([]byte, agent.FrameBytes))
	turns := 0
	for e := range s.Events() {
		switch {
		case e.Kind == agent.ToolCall:
			s.ToolResult(e.ID, json.RawMessage(`{"state":"busy"}`))
		case e.Kind == agent.TurnDone && turns == 1:
			server.Speak("Give me the desk.")
		case e.Kind == agent.Utterance && e.Text == "One moment.":
			s.Interrupted(e.Item, 20*time.Millisecond)
			s.Interrupted("unknown", 0)
		case e.Kind == agent.TurnDone && turns == 3:
			s.HearDigit('1')
			server.Cut() // the new session must receive the history
		case e.Kind == agent.TurnDone && turns == 5:
			server.Interrupt()
			server.Inject([]byte(`{"type":"response.cancel"}`)) // the client does not handle this event
			s.Close()
		}
		if e.Kind == agent.TurnDone {
			turns++
		}
		if ctx.Err() != nil {
			t.Fatal("the conversation did not end")
		}
	}
	return server
}

// Each event must have all required fields, and no unknown fields.
func TestSDK_DecodesAllRealtimeEvents(t *testing.T) {
	t.Parallel()
	server := converse(t)
	kinds := map[string]bool{}
	for _, message := range server.Sent("") {
		var event sdk.RealtimeServerEventUnion
		if err := json.Unmarshal(message, &event); err != nil {
			t.Fatalf("%s: %v", message, err)
		}
		kinds[event.Type] = true
		variant := event.AsAny()
		if variant == nil {
			t.Errorf("the SDK knows no event %s", event.Type)
			continue
		}
		checkFields(t, event.Type, reflect.ValueOf(variant))
	}
	for _, must := range []string{
		"session.created", "session.updated", "response.created", "response.output_audio.delta", "response.output_audio.done", "response.output_audio_transcript.done",
		"response.done", "response.function_call_arguments.done", "input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped",
		"input_audio_buffer.committed", "conversation.item.input_audio_transcription.completed", "conversation.item.truncated",
		"conversation.item.added", "conversation.item.done", "response.output_item.added", "response.content_part.added",
	} {
		if !kinds[must] {
			t.Errorf("the conversation had no %s", must)
		}
	}
	kinds = map[string]bool{}
	for _, message := range server.Received("") {
		var event sdk.RealtimeClientEventUnionParam
		if err := json.Unmarshal(message, &event); err != nil {
			t.Fatalf("%s: %v", message, err)
		}
		again, err := json.Marshal(event)
		if err != nil {
			t.Fatal(err)
		}
		var sent, read map[string]any
		switch {
		case json.Unmarshal(message, &sent) != nil:
			t.Error("json.Unmarshal(message, &sent) is not nil")
		case json.Unmarshal(again, &read) != nil:
			t.Error("json.Unmarshal(again, &read) is not nil")
		case !reflect.DeepEqual(sent, read):
			t.Errorf("sent = %v, want %v", sent, read)
		}
		kinds[sent["type"].(string)] = true
	}
	for _, must := range []string{"session.update", "input_audio_buffer.append", "response.create", "conversation.item.create", "conversation.item.truncate"} {
		if !kinds[must] {
			t.Errorf("we never sent %s", must)
		}
	}
}

// If the SDK were linked into the dialer, the size of the program would be three times as large.
func TestSDK_IsNotLinkedIntoTheDialer(t *testing.T) {
	t.Parallel()
	list, err := exec.CommandContext(
		t.Context(),
		"go",
		"list",
		"-deps",
		"ringfence.dev/services/dialer/cmd/dialer",
		"ringfence.dev/services/dialer/internal/agent/realtime",
		"ringfence.dev/services/dialer/internal/agent/live",
	).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	if !strings.Contains(string(list), "ringfence.dev/services/dialer/internal/agent/realtime") {
		t.Fatal("go list does not list what it was asked for")
	}
	for name := range strings.FieldsSeq(string(list)) {
		for _, unwanted := range []string{"openai-go", "realtimetest", "livetest"} {
			if strings.Contains(name, unwanted) {
				t.Errorf("%s is linked", name)
			}
		}
	}
}

func checkFields(t *testing.T, name string, value reflect.Value) {
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
		if strings.Contains(field.Tag.Get("api"), "required") {
			if raw := seen.FieldByName(field.Name).MethodByName("Raw"); raw.Call(nil)[0].String() == "" {
				t.Errorf("%s: %s is required and missing", name, field.Name)
			}
		}
	}
	if extra := seen.FieldByName("ExtraFields"); extra.IsValid() && extra.Len() > 0 {
		t.Errorf("%s: the SDK does not know %v", name, extra.MapKeys())
	}
}
