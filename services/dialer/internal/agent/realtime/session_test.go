package realtime_test

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"ringfence.dev/libs/ssrf"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/agent/modeltest"
	"ringfence.dev/services/dialer/internal/agent/realtime"
)

func TestToolResult_RequestsAResponse(t *testing.T) {
	t.Parallel()
	l := lineAfterGreeting(t, modeltest.RealtimeOptions{Reply: func(heard, asked string, _ int) modeltest.RealtimeReply {
		switch {
		case strings.Contains(heard, "never"):
			return modeltest.RealtimeReply{Tool: agent.ToolOptOut, Args: `{"quote":"never again"}`}
		case strings.Contains(heard, "noted"):
			return modeltest.RealtimeReply{Text: "It is noted. Goodbye.", Tool: agent.ToolEndCall}
		}
		return modeltest.RealtimeReply{Text: modeltest.QuotedRealtime(asked, "Good day.")}
	}})
	l.server.Speak("Call me never again.")
	call := l.wait(agent.ToolCall, 1)
	if call.Tool != agent.ToolOptOut {
		t.Errorf("call.Tool = %v, want %v", call.Tool, agent.ToolOptOut)
	} else if string(call.Args) != `{"quote":"never again"}` {
		t.Errorf("call.Args = %q, want %q", string(call.Args), `{"quote":"never again"}`)
	}
	l.ToolResult(call.ID, json.RawMessage(`{"state":"noted"}`))
	// The model must receive only the first result of a tool call.
	l.ToolResult(call.ID, json.RawMessage(`{"state":"noted"}`))
	end := l.wait(agent.ToolCall, 2)
	l.wait(agent.TurnDone, 4)
	l.ToolResult(end.ID, json.RawMessage(`{}`))
	waitReceived(t, l.server, "conversation.item.create", 2)
	if n := len(l.server.Received("response.create")); n != 3 {
		t.Errorf("requested responses = %d, want 3: none after end_call", n)
	}
	heard := l.all(agent.Utterance)
	if !strings.Contains(string(mustJSON(t, heard)), "Call me never again.") {
		t.Errorf("history = %v, want the person's words in it", heard)
	}
	if n := len(l.all(agent.ToolCall)); n != 2 {
		t.Errorf("tool calls = %d, want each once", n)
	}
	l.checkNoErrors()
}

func mustJSON(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestSay_WaitsForTheActiveResponse(t *testing.T) {
	t.Parallel()
	l := lineAfterGreeting(t, modeltest.RealtimeOptions{Pace: 5 * time.Millisecond, Chunk: 800})
	l.server.Speak("Tell me all about tea.")
	l.Say("Goodbye now.")
	l.wait(agent.TurnDone, 4)
	utterances := l.all(agent.Utterance)
	if last := utterances[len(utterances)-1]; last.Text != "Goodbye now." {
		t.Errorf("spoken texts = %v, want the farewell last", utterances)
	}
	for _, e := range l.all(agent.Audio) {
		disclosure, farewell := utterances[0].Item, utterances[len(utterances)-1].Item
		if e.Keep != (e.Item == disclosure || e.Item == farewell) {
			t.Errorf("audio of %s is kept: %v", e.Item, e.Keep)
		}
	}
}

// If a machine answers, the message can be requested before the disclosure was spoken. The model
// must then speak the disclosure and the message, but no greeting.
func TestSay_TextIsSpokenAfterTheDisclosure(t *testing.T) {
	t.Parallel()
	l := open(
		t,
		serve(t, modeltest.RealtimeOptions{Pace: 5 * time.Millisecond, Chunk: 800}),
		agent.Settings{Greeting: "This is Ida."},
	)
	l.Begin()
	l.Say("Please call back.")
	l.wait(agent.TurnDone, 2)
	utterances := l.all(agent.Utterance)
	switch {
	case len(utterances) != 2:
		t.Fatalf("length of utterances = %v, want 2", len(utterances))
	case !strings.Contains(utterances[0].Text, "AI assistant"):
		t.Fatalf("utterances[0].Text = %q, want it to contain %q", utterances[0].Text, "AI assistant")
	case utterances[1].Text != "Please call back.":
		t.Fatalf(`utterances[1].Text = %v, want "Please call back."`, utterances[1].Text)
	}
	for _, e := range l.all(agent.Audio) {
		if !e.Keep {
			t.Error("e.Keep = false, want true")
		} else if e.Asked != (e.Item == utterances[1].Item) {
			t.Errorf("e.Asked = %v, want %v", e.Asked, e.Item == utterances[1].Item)
		}
	}
	l.checkNoErrors()
}

func TestReconnect_SendsTheHistoryAndHappensOnlyOnce(t *testing.T) {
	t.Parallel()
	l := lineAfterGreeting(t, modeltest.RealtimeOptions{})
	l.server.Speak("My name is Ada.")
	l.wait(agent.TurnDone, 3)
	l.server.Cut()
	waitReceived(t, l.server, "conversation.item.create", 4)
	var items []string
	for _, one := range l.server.Received("conversation.item.create") {
		items = append(items, string(one))
	}
	for _, must := range []string{`"assistant","content":[{"type":"output_text","text":"Hello, you are`, `"user",` +
		`"content":[{"type":"input_text","text":"My name is Ada."`} {
		if !strings.Contains(strings.Join(items, "\n"), must) {
			t.Errorf("history lacks %s: %v", must, items)
		}
	}
	if update := waitReceived(t, l.server, "session.update", 3); dig(
		update,
		"session",
		"audio",
		"input",
		"turn_detection",
		"create_response",
	) != true {
		t.Error("the new session does not respond to the person")
	}
	before := l.server.Frames()
	testkit.Until(t, "the server receives audio", func() bool {
		l.HearAudio(bytes.Repeat([]byte{0xff}, 160))
		return l.server.Frames() > before
	})
	testkit.Until(t, "the server has four items", func() bool {
		return len(l.server.Received("conversation.item.create")) >= 4
	})
	l.server.Speak("Are you there?")
	l.wait(agent.TurnDone, 4)
	if n := len(l.server.Received("response.create")); n != 2 {
		t.Errorf("requested responses = %d, want the disclosure and the greeting once", n)
	}
	l.checkNoErrors()
	l.server.Cut()
	<-l.ended
	if failed := l.wait(agent.Failed, 1); failed.Err == nil {
		t.Error("lost twice: failed.Err = nil, want a value")
	} else if got := l.server.Connections(); got != 2 {
		t.Errorf("lost twice: l.server.Connections() = %v, want 2", got)
	}
}

func TestReconnect_RepeatsTheWholeDisclosure(t *testing.T) {
	t.Parallel()
	l := open(t, serve(t, modeltest.RealtimeOptions{Pace: 3 * time.Millisecond, Chunk: 160}), agent.Settings{})
	l.Begin()
	first := l.wait(agent.Audio, 2)
	l.server.Cut()
	l.wait(agent.TurnDone, 3)
	again := l.all(agent.Utterance)[0]
	switch {
	case !strings.Contains(again.Text, "AI assistant"):
		t.Errorf("again.Text = %q, want it to contain %q", again.Text, "AI assistant")
	case again.Item == "":
		t.Error(`again.Item = "", want another value`)
	case !first.Keep:
		t.Error("first.Keep = false, want true")
	}
	if len(l.all(agent.ItemDone)) != 3 { // the interrupted item, the disclosure and the greeting
		t.Errorf("%d items done", len(l.all(agent.ItemDone)))
	}
}

func TestSession_FailsAfterAnUnrecoverableError(t *testing.T) {
	t.Parallel()
	t.Run("reconnect fails", func(t *testing.T) {
		t.Parallel()
		l := lineAfterGreeting(t, modeltest.RealtimeOptions{})
		l.server.Refuse(1)
		l.server.Cut()
		l.wait(agent.Failed, 1)
	})
	t.Run("two failed responses", func(t *testing.T) {
		t.Parallel()
		l := open(
			t,
			serve(
				t,
				modeltest.RealtimeOptions{
					Reply: func(string, string, int) modeltest.RealtimeReply { return modeltest.RealtimeReply{Status: "failed"} },
				},
			),
			agent.Settings{},
		)
		l.Begin()
		l.wait(agent.Failed, 1)
	})
	t.Run("too many tool calls", func(t *testing.T) {
		t.Parallel()
		l := lineAfterGreeting(t, modeltest.RealtimeOptions{})
		for i := range 101 {
			l.server.Inject(
				[]byte(
					`{"type":"response.function_call_arguments.done","item_id":"i","call_id":"c` + strconv.Itoa(
						i,
					) + `","name":"opt_out","arguments":"{}"}`,
				),
			)
		}
		l.wait(agent.Failed, 1)
		if n := len(l.all(agent.ToolCall)); n != 100 {
			t.Errorf("%d tool calls", n)
		}
	})
	t.Run("invalid JSON", func(t *testing.T) {
		t.Parallel()
		l := lineAfterGreeting(t, modeltest.RealtimeOptions{})
		l.server.Inject([]byte(`{"type":`))
		l.wait(agent.Failed, 1)
	})
	t.Run("two messages above the size limit", func(t *testing.T) {
		t.Parallel()
		l := lineAfterGreeting(t, modeltest.RealtimeOptions{})
		l.server.Inject([]byte(`{"type":"session.updated","x":"` + strings.Repeat("x", 2<<20) + `"}`))
		testkit.Until(t, "the session reconnects", func() bool { return l.server.Connections() >= 2 })
		waitReceived(t, l.server, "conversation.item.create", 2)
		l.server.Inject([]byte(`{"type":"session.updated","x":"` + strings.Repeat("x", 2<<20) + `"}`))
		l.wait(agent.Failed, 1)
	})
}

func TestSession_IgnoresUnknownEvents(t *testing.T) {
	t.Parallel()
	l := lineAfterGreeting(t, modeltest.RealtimeOptions{})
	for _, odd := range []string{`{}`, `{"type":"from.the.future",` +
		`"delta":{"a":1}}`, `{"type":"response.output_audio.done","item_id":"never"}`,
		`{"type":"error","error":{"code":"odd","event_id":"nobody's"}}`,
		`{"type":"response.output_audio_transcript.done","transcript":""}`,
		`{"type":"response.function_call_arguments.done","name":"x","arguments":"no"}`} {
		l.server.Inject([]byte(odd))
	}
	l.server.Speak("Still there?")
	l.wait(agent.TurnDone, 3)
	if n := len(l.all(agent.Failed)) + len(l.all(agent.ToolCall)); n != 0 {
		t.Errorf("failures and tool calls of unknown events = %d, want 0", n)
	}
}

func TestClose_EndsTheSession(t *testing.T) {
	t.Parallel()
	l := lineAfterGreeting(t, modeltest.RealtimeOptions{})
	l.Close()
	l.Close()
	l.wait(agent.Closed, 1)
	<-l.ended
	l.Begin()
	l.Say("too late")
	l.HearAudio(make([]byte, 160))
	l.Interrupted("x", 1)
	if n := len(l.server.Received("response.create")); n != 2 {
		t.Errorf("%d responses, want none after the end", n)
	}
}

// stuck returns the URL of a server that confirms the session and then stops reading.
func stuck(t *testing.T) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		ws.SetReadLimit(1 << 20)
		_, _, _ = ws.Read(r.Context())
		_ = ws.Write(r.Context(), websocket.MessageText, []byte(`{"type":"session.updated"}`))
		<-t.Context().Done()
		_ = ws.CloseNow()
	}))
	server.Config.ConnState = func(conn net.Conn, _ http.ConnState) {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetReadBuffer(4096)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return "ws" + strings.TrimPrefix(server.URL, "http") + "/v1/realtime"
}

func TestHearAudio_NeverBlocks(t *testing.T) {
	t.Parallel()
	s, err := realtime.New(realtime.Config{URL: stuck(t), Key: "k"}, ssrf.New(nil), nil).Open(t.Context(), agent.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	s.Begin()
	frame := bytes.Repeat([]byte{0x55}, 160)
	for range 100_000 { // together, the frames have 27 MB, more than any buffer of the system
		s.HearAudio(frame)
	}
	s.Close()
	var last agent.Event
	for e := range s.Events() {
		last = e
	}
	if last.Kind != agent.Closed {
		t.Errorf("last event = %s, want %s", last.Kind, agent.Closed)
	}
	if last.Dropped < 10_000 {
		t.Errorf("dropped frames = %d, want at least 10000", last.Dropped)
	}
}

// The person interrupts the agent while the model is still sending audio of the item.
func TestInterruption_DropsFurtherAudioOfTheItem(t *testing.T) {
	t.Parallel()
	l := lineAfterGreeting(t, modeltest.RealtimeOptions{})
	greeting := l.all(agent.Utterance)[1].Item
	before := len(l.all(agent.Audio))
	l.Interrupted(greeting, 0)
	l.server.Inject([]byte(`{"type":"response.output_audio.delta","item_id":"` + greeting + `","delta":"//8="}`))
	l.server.Inject([]byte(`{"type":"response.output_audio.delta","item_id":"another","delta":"//8="}`))
	testkit.Until(t, "more audio is played", func() bool { return len(l.all(agent.Audio)) > before })
	if last := l.all(agent.Audio)[before]; last.Item != "another" {
		t.Errorf("played bytes = %d of item %s, want none", len(last.Audio), last.Item)
	}
}

func TestToolResult_RequestsOneResponseForAllResults(t *testing.T) {
	t.Parallel()
	l := lineAfterGreeting(t, modeltest.RealtimeOptions{})
	for _, id := range []string{"c1", "c2"} {
		l.server.Inject(
			[]byte(
				`{"type":"response.function_call_arguments.done","item_id":"i","call_id":"` + id + `","name":"opt_out",` +
					`"arguments":"{}"}`,
			),
		)
	}
	l.wait(agent.ToolCall, 2)
	l.ToolResult("c1", json.RawMessage(`{}`))
	waitReceived(t, l.server, "conversation.item.create", 1)
	l.ToolResult("c2", json.RawMessage(`{}`))
	l.wait(agent.TurnDone, 3)
	l.server.Inject(
		[]byte(
			`{"type":"response.function_call_arguments.done","item_id":"i","call_id":"c3","name":"opt_out","arguments":"{}"}`,
		),
	)
	l.wait(agent.ToolCall, 3)
	l.ToolResult("c3", json.RawMessage(`{}`))
	l.wait(agent.TurnDone, 4)
	var order []string
	for _, message := range l.server.Received("") {
		var head struct{ Type string }
		if err := json.Unmarshal(message, &head); err != nil {
			t.Fatal(err)
		}
		order = append(order, head.Type)
	}
	want := "conversation.item.create conversation.item.create response.create conversation.item.create response.create"
	if !strings.HasSuffix(strings.Join(order, " "), want) {
		t.Errorf("sent events = %v, want both results and one response.create, then the third and another", order)
	}
}
