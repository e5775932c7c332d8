package live_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/libs/ssrf"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/agent/live"
	"ringfence.dev/services/dialer/internal/agent/modeltest"
)

const disclosure = "Hello, you are talking to an AI assistant."

var (
	hush  = bytes.Repeat([]byte{0xff}, agent.FrameBytes)
	voice = bytes.Repeat([]byte{0x20, 0x30, 0xa0, 0xb0}, agent.FrameBytes/4)
)

func serve(t *testing.T, opts modeltest.LiveOptions) *modeltest.LiveServer {
	t.Helper()
	server := modeltest.NewLive(opts)
	t.Cleanup(server.Close)
	return server
}

func opener(server *modeltest.LiveServer, log *slog.Logger) *live.Opener {
	cfg := live.Config{URL: server.URL, Key: "operator", Model: "gpt-live-1", BackendModel: "gpt-6-luna"}
	return live.New(cfg, ssrf.New(nil), nil, log)
}

// line sends the person's audio at twenty times real time, and collects the events of the session.
// The fake server measures time by the length of this audio.
type line struct {
	agent.Session
	t     *testing.T
	stop  context.CancelFunc
	ended chan struct{}

	mu      sync.Mutex
	loud    int // number of frames of speech that must still be sent
	events  []agent.Event
	changed chan struct{} // closed and replaced at each event
}

func call(t *testing.T, server *modeltest.LiveServer, spec agent.Spec) *line {
	t.Helper()
	spec.Settings.Kind = agent.Live
	session, err := opener(server, slog.New(slog.DiscardHandler)).Open(t.Context(), spec)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	l := &line{Session: session, t: t, stop: stop, ended: make(chan struct{}), changed: make(chan struct{})}
	var feeding sync.WaitGroup
	feeding.Go(func() { l.feed(ctx) })
	go func() {
		defer close(l.ended)
		for e := range session.Events() {
			l.mu.Lock()
			l.events = append(l.events, e)
			close(l.changed)
			l.changed = make(chan struct{})
			l.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		stop()
		feeding.Wait()
		session.Close()
		<-l.ended
	})
	return l
}

func (l *line) feed(ctx context.Context) {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		l.mu.Lock()
		frame := hush
		if l.loud > 0 {
			frame, l.loud = voice, l.loud-1
		}
		l.mu.Unlock()
		l.HearAudio(frame)
	}
}

func (l *line) speak(frames int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loud = frames
}

func (l *line) wait(what string, match func(agent.Event) bool) agent.Event {
	l.t.Helper()
	hang := time.After(testkit.Timeout)
	for {
		l.mu.Lock()
		changed := l.changed
		for _, e := range l.events {
			if match(e) {
				l.mu.Unlock()
				return e
			}
		}
		l.mu.Unlock()
		select {
		case <-changed:
		case <-hang:
			l.t.Fatalf("no event: %s; events: %s", what, l.describe())
		}
	}
}

func (l *line) describe() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out strings.Builder
	for _, e := range l.events {
		if e.Kind != agent.Audio {
			out.WriteString("\n" + string(e.Kind) + " " + e.Item + " " + e.Role + " " + e.Text + e.Tool)
		}
	}
	return out.String()
}

func (l *line) all() []agent.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]agent.Event(nil), l.events...)
}

func utterance(role, text string) func(agent.Event) bool {
	return func(e agent.Event) bool { return e.Kind == agent.Utterance && e.Role == role && e.Text == text }
}

func kind(k agent.Kind) func(agent.Event) bool {
	return func(e agent.Event) bool { return e.Kind == k }
}

func received(t *testing.T, server *modeltest.LiveServer, kind string, n int) map[string]any {
	t.Helper()
	testkit.Until(t, fmt.Sprintf("the server has received %d events %s", n, kind), func() bool {
		return len(server.Received(kind)) >= n
	})
	found := server.Received(kind)[n-1]
	var event map[string]any
	if err := json.Unmarshal(found, &event); err != nil {
		t.Fatalf("read %s: %v", found, err)
	}
	return event
}

func refusals(t *testing.T, server *modeltest.LiveServer) {
	t.Helper()
	for _, fault := range server.Sent("error") {
		t.Errorf("the server refused an event: %s", fault)
	}
}

func TestOpen_ConfiguresTheSession(t *testing.T) {
	t.Parallel()
	server := serve(t, modeltest.LiveOptions{Key: "operator"})
	call(t, server, agent.Spec{Settings: agent.Settings{
		Instructions: "Sell tea.", Voice: "marin", Language: "de", Transfers: map[string]string{"desk": "+41440000000"},
	}})
	session, _ := received(t, server, "session.start", 1)["session"].(map[string]any)
	if got := session["model"]; got != "gpt-live-1" {
		t.Errorf("model = %v, want gpt-live-1", got)
	}
	wantAudio := map[string]any{
		"format": map[string]any{"type": "audio/pcmu", "rate": 8000.0},
		"output": map[string]any{"voice": "marin"},
	}
	if diff := cmp.Diff(wantAudio, session["audio"]); diff != "" {
		t.Errorf("audio (-want +got):\n%s", diff)
	}
	if got, _ := session["instructions"].(string); !strings.HasPrefix(got, "Sell tea.") {
		t.Errorf("instructions = %q, want them to begin with those of the agent", got)
	}
	delegation, _ := session["delegation"].(map[string]any)
	backend, _ := delegation["responses"].(map[string]any)
	if got := backend["model"]; got != "gpt-6-luna" {
		t.Errorf("backend model = %v, want gpt-6-luna", got)
	}
	var names []string
	tools, _ := backend["tools"].([]any)
	for _, tool := range tools {
		name, _ := tool.(map[string]any)["name"].(string)
		names = append(names, name)
	}
	want := []string{"end_call", "opt_out", "schedule_callback", "voicemail_detected", "press_digits", "transfer"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("tools of the backend (-want +got):\n%s", diff)
	}
	refusals(t, server)
}

func TestOpen_ReturnsTheErrorOfTheServer(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		opts modeltest.LiveOptions
		want string
	}{
		{name: "refused session", opts: modeltest.LiveOptions{Refuse: "model_not_found"}, want: "model_not_found"},
		{name: "wrong key", opts: modeltest.LiveOptions{Key: "another"}, want: "401"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, tt.opts)
			_, err := opener(server, slog.New(slog.DiscardHandler)).Open(t.Context(), agent.Spec{})
			if err == nil {
				t.Fatal("Open = nil, want an error")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Open = %v, want an error that contains %q", err, tt.want)
			}
		})
	}
	t.Run("base_url of a workspace has a private address", func(t *testing.T) {
		t.Parallel()
		server := serve(t, modeltest.LiveOptions{})
		spec := agent.Spec{Key: "k", Settings: agent.Settings{BaseURL: "wss" + strings.TrimPrefix(server.URL, "ws")}}
		if _, err := opener(server, slog.New(slog.DiscardHandler)).Open(t.Context(), spec); err == nil {
			t.Error("Open = nil, want an error: the guard forbids this address")
		}
	})
	t.Run("no key", func(t *testing.T) {
		t.Parallel()
		o := live.New(live.Config{URL: "wss://live.example"}, ssrf.New(nil), nil, slog.New(slog.DiscardHandler))
		if _, err := o.Open(t.Context(), agent.Spec{}); !errors.Is(err, live.ErrUnconfigured) {
			t.Errorf("Open = %v, want ErrUnconfigured", err)
		}
	})
}

func TestOpen_LogsThatTheKindIsExperimental(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	server := serve(t, modeltest.LiveOptions{})
	session, err := opener(server, slog.New(slog.NewJSONHandler(&out, nil))).Open(t.Context(), agent.Spec{})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	session.Close()
	if !strings.Contains(out.String(), `"msg":"experimental agent kind used","kind":"openai_live"`) {
		t.Errorf("log = %s, want a line that names the experimental kind", &out)
	}
}

func TestConversation_StartsWithDisclosureAndGreeting(t *testing.T) {
	t.Parallel()
	server := serve(t, modeltest.LiveOptions{})
	l := call(t, server, agent.Spec{Settings: agent.Settings{Greeting: "This is Ida from the tea shop."}})
	l.Begin()
	l.wait("greeting", utterance(agent.RoleAgent, "This is Ida from the tea shop."))

	var order []string
	for _, e := range l.all() {
		switch {
		case e.Kind == agent.Utterance:
			order = append(order, e.Text)
		case e.Kind == agent.Audio && e.Item == "item-1" && !e.Keep:
			t.Errorf("audio of the disclosure has Keep = false, want true")
		case e.Kind == agent.Audio && e.Item == "item-2" && e.Keep:
			t.Errorf("audio of the greeting has Keep = true, want false")
		}
	}
	if diff := cmp.Diff([]string{disclosure, "This is Ida from the tea shop."}, order); diff != "" {
		t.Errorf("what the model said (-want +got):\n%s", diff)
	}
	var commands []string
	for _, message := range server.Received("") {
		var event struct{ Type string }
		if err := json.Unmarshal(message, &event); err != nil {
			t.Fatal(err)
		}
		if event.Type != "session.input_audio.append" {
			commands = append(commands, event.Type)
		}
	}
	want := []string{
		"session.start", "session.input_audio.mute", "session.commentary.append", "session.input_audio.unmute",
		"session.commentary.append",
	}
	if diff := cmp.Diff(want, commands); diff != "" {
		t.Errorf("events that the server received (-want +got):\n%s", diff)
	}
	refusals(t, server)
}

func TestConversation_ReportsTheRecordingNoticeAfterTheDisclosure(t *testing.T) {
	t.Parallel()
	server := serve(t, modeltest.LiveOptions{})
	l := call(t, server, agent.Spec{Notice: "This call is recorded.", NoticeKnown: true})
	l.Begin()
	noticed := l.wait("notice", kind(agent.Noticed))
	l.wait("disclosure with notice", utterance(agent.RoleAgent, disclosure+" This call is recorded."))
	if noticed.Item != "item-1" {
		t.Errorf("item of Noticed = %q, want item-1", noticed.Item)
	}
}

func TestConversation_FailsIfTheModelDoesNotSpeakTheDisclosure(t *testing.T) {
	t.Parallel()
	server := serve(t, modeltest.LiveOptions{Unspoken: 2})
	l := call(t, server, agent.Spec{Notice: "This call is recorded.", NoticeKnown: true})
	l.Begin()
	failed := l.wait("failure", kind(agent.Failed))
	if !errors.Is(failed.Err, agent.ErrBroken) {
		t.Errorf("error = %v, want ErrBroken", failed.Err)
	}
	for _, e := range l.all() {
		if e.Kind == agent.Noticed {
			t.Error("Noticed was reported, want no such event")
		}
	}
}

func TestConversation_RequestsTheDisclosureAgainIfItIsNotSpoken(t *testing.T) {
	t.Parallel()
	server := serve(t, modeltest.LiveOptions{Unspoken: 1})
	l := call(t, server, agent.Spec{})
	l.Begin()
	l.wait("disclosure", utterance(agent.RoleAgent, disclosure))
	received(t, server, "session.commentary.append", 2)
}

func TestConversation_TransportsAudioInBothDirections(t *testing.T) {
	t.Parallel()
	server := serve(t, modeltest.LiveOptions{
		Hears: func(int) string { return "Who is there?" },
		Reply: func(heard string) modeltest.LiveReply {
			if heard == "Who is there?" {
				return modeltest.LiveReply{Text: "The tea shop."}
			}
			return modeltest.LiveReply{}
		},
	})
	l := call(t, server, agent.Spec{})
	l.Begin()
	received(t, server, "session.input_audio.unmute", 1)
	l.speak(40)
	l.wait("words of the person", utterance(agent.RolePerson, "Who is there?"))
	answer := l.wait("answer", utterance(agent.RoleAgent, "The tea shop."))

	sound, quiet := 0, 0
	for _, e := range l.all() {
		if e.Kind != agent.Audio || e.Item != answer.Item {
			continue
		}
		for _, sample := range e.Audio {
			if sample == 0xff {
				quiet++
			} else {
				sound++
			}
		}
	}
	if want := len("Theteashop.") * 2 * agent.FrameBytes; sound != want {
		t.Errorf("sound of the answer = %d bytes, want %d", sound, want)
	}
	if most := agent.BytesPerSecond; quiet > most {
		t.Errorf("silence of the answer = %d bytes, want at most %d", quiet, most)
	}
	refusals(t, server)
}

func TestConversation_SendsToolResults(t *testing.T) {
	t.Parallel()
	tests := []struct{ tool, args, result string }{
		{tool: agent.ToolOptOut, args: `{"quote":"never call again"}`},
		{tool: agent.ToolCallback, args: `{"at":"2026-12-01T09:00:00+01:00"}`},
		{tool: agent.ToolTransfer, args: `{"to":"desk"}`},
		{tool: agent.ToolEndCall, args: `{"outcome":"not one of the list"}`, result: `{"state":"refused"}`},
	}
	for _, tt := range tests {
		t.Run(tt.tool, func(t *testing.T) {
			t.Parallel()
			result := `{"state":"done"}`
			if tt.result != "" {
				result = tt.result
			}
			server := serve(t, modeltest.LiveOptions{Reply: func(heard string) modeltest.LiveReply {
				if heard == result {
					return modeltest.LiveReply{Text: "That is noted."}
				}
				return modeltest.LiveReply{Text: "One moment.", Tool: tt.tool, Args: tt.args}
			}})
			l := call(
				t,
				server,
				agent.Spec{Settings: agent.Settings{Transfers: map[string]string{"desk": "+41440000000"}}},
			)
			l.Begin()
			called := l.wait("tool call", kind(agent.ToolCall))
			if called.Tool != tt.tool {
				t.Errorf("tool = %s, want %s", called.Tool, tt.tool)
			}
			if got := string(called.Args); got != tt.args {
				t.Errorf("arguments = %s, want %s", got, tt.args)
			}
			l.ToolResult(called.ID, json.RawMessage(result))
			// The model must receive only the first result of a tool call.
			l.ToolResult(called.ID, json.RawMessage(result))
			l.wait("answer after the result", utterance(agent.RoleAgent, "That is noted."))
			if got := len(server.Received("response.item.create")); got != 1 {
				t.Errorf("results that the server received = %d, want 1", got)
			}
			refusals(t, server)
		})
	}
}

func TestConversation_EndCallToolRequestsNoResponse(t *testing.T) {
	t.Parallel()
	server := serve(t, modeltest.LiveOptions{Reply: func(string) modeltest.LiveReply {
		return modeltest.LiveReply{Text: "Goodbye.", Tool: agent.ToolEndCall, Args: `{"outcome":"interested"}`}
	}})
	l := call(t, server, agent.Spec{})
	l.Begin()
	called := l.wait("tool call", kind(agent.ToolCall))
	l.ToolResult(called.ID, json.RawMessage(`{}`))
	received(t, server, "response.item.create", 1)
	l.Close()
	l.wait("end", kind(agent.Closed))
	if got := len(server.Received("response.create")); got != 0 {
		t.Errorf("response.create events = %d, want 0", got)
	}
	received(t, server, "session.close", 1)
	refusals(t, server)
}

// The model itself stops speaking when the person speaks, so the item ends early.
func TestConversation_InterruptionShortensTheItem(t *testing.T) {
	t.Parallel()
	long := strings.TrimSpace(strings.Repeat("word ", 200))
	server := serve(t, modeltest.LiveOptions{
		Hears: func(int) string { return "Stop." },
		Reply: func(heard string) modeltest.LiveReply {
			if heard == "Stop." {
				return modeltest.LiveReply{Text: "Sorry."}
			}
			return modeltest.LiveReply{Text: long}
		},
	})
	l := call(t, server, agent.Spec{})
	l.Begin()
	l.wait("the long sentence", func(e agent.Event) bool { return e.Kind == agent.Audio && e.Item == "item-2" })
	l.speak(80)
	cut := l.wait("end of the long sentence",
		func(e agent.Event) bool { return e.Kind == agent.Utterance && e.Item == "item-2" })
	if len(cut.Text) >= len(long) {
		t.Errorf("the model said %d characters, want fewer than %d", len(cut.Text), len(long))
	}
	l.Interrupted(cut.Item, time.Second) // has no effect: the API has no event for an interruption
	l.wait("words of the person", utterance(agent.RolePerson, "Stop."))
	l.wait("answer", utterance(agent.RoleAgent, "Sorry."))
	refusals(t, server)
}

func TestSay_TextIsNotInterruptedAndEndsTheTurn(t *testing.T) {
	t.Parallel()
	server := serve(t, modeltest.LiveOptions{})
	l := call(t, server, agent.Spec{Settings: agent.Settings{Disclosure: agent.Disclosure{OffReason: "test"}}})
	l.Begin()
	l.wait("first words", utterance(agent.RoleAgent, "Good day."))
	l.Say("We will call again tomorrow. Goodbye.")
	last := l.wait("farewell", utterance(agent.RoleAgent, "We will call again tomorrow. Goodbye."))
	events, done := l.all(), false
	for _, e := range events {
		switch {
		case e.Kind == agent.Audio && e.Item == last.Item && !e.Keep:
			t.Error("audio of Say has Keep = false, want true")
		case e.Kind == agent.Audio && e.Item == last.Item && !e.Asked:
			t.Error("audio of Say has Asked = false, want true")
		}
	}
	l.wait("end of the turn", func(e agent.Event) bool {
		done = done || e.Kind == agent.Utterance && e.Item == last.Item
		return done && e.Kind == agent.TurnDone
	})
	refusals(t, server)
}

func TestHearDigit_SendsTheDigitToTheModel(t *testing.T) {
	t.Parallel()
	server := serve(t, modeltest.LiveOptions{Reply: func(heard string) modeltest.LiveReply {
		if strings.Contains(heard, "key 5") {
			return modeltest.LiveReply{Text: "You pressed five."}
		}
		return modeltest.LiveReply{}
	}})
	l := call(t, server, agent.Spec{})
	l.Begin()
	l.HearDigit('5')
	l.wait("reaction", utterance(agent.RoleAgent, "You pressed five."))
	refusals(t, server)
}

func TestConversation_LastEventShowsWhetherTheAgentFailed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		end  func(*modeltest.LiveServer, *line)
		want agent.Kind
		err  string
	}{
		{name: "dialer closes the session", end: func(_ *modeltest.LiveServer, l *line) { l.Close() }, want: agent.Closed},
		{
			name: "session expires", end: func(s *modeltest.LiveServer, _ *line) { s.End("expired") }, want: agent.Failed,
			err: `"expired"`,
		},
		{
			name: "content filter ends the session",
			end:  func(s *modeltest.LiveServer, _ *line) { s.End("content") },
			want: agent.Failed,
			err:  `"content"`,
		},
		{
			name: "lost connection",
			end:  func(s *modeltest.LiveServer, _ *line) { s.Cut() },
			want: agent.Failed,
			err:  "lost",
		},
		{
			name: "invalid JSON", end: func(s *modeltest.LiveServer, _ *line) { s.Inject([]byte("{")) },
			want: agent.Failed, err: "read the agent's event",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, modeltest.LiveOptions{})
			l := call(t, server, agent.Spec{})
			l.Begin()
			l.wait("first words", utterance(agent.RoleAgent, disclosure))
			tt.end(server, l)
			last := l.wait("end", func(e agent.Event) bool { return e.Kind == agent.Closed || e.Kind == agent.Failed })
			if last.Kind != tt.want {
				t.Errorf("last event = %s, want %s", last.Kind, tt.want)
			}
			if last.Err == nil {
				if tt.err != "" {
					t.Errorf("error = nil, want one that contains %q", tt.err)
				}
				return
			}
			if !strings.Contains(last.Err.Error(), tt.err) {
				t.Errorf("error = %v, want one that contains %q", last.Err, tt.err)
			}
		})
	}
}

// An error that belongs to no command, such as a moderation error, must not end the session.
func TestConversation_ContinuesAfterAnError(t *testing.T) {
	t.Parallel()
	server := serve(t, modeltest.LiveOptions{})
	l := call(t, server, agent.Spec{Settings: agent.Settings{Greeting: "Welcome."}})
	l.Begin()
	server.Fail("output_moderated")
	server.Inject([]byte(`{"type":"session.new_event"}`))
	l.wait("greeting", utterance(agent.RoleAgent, "Welcome."))
}

func TestMethods_HaveNoEffectBeforeBeginAndAfterClose(t *testing.T) {
	t.Parallel()
	server := serve(t, modeltest.LiveOptions{})
	l := call(t, server, agent.Spec{})
	l.Say("Too early.")
	l.HearDigit('1')
	l.ToolResult("unknown", json.RawMessage(`{}`))
	l.Close()
	l.Close()
	l.Begin()
	l.Say("Too late.")
	l.wait("end", kind(agent.Closed))
	<-l.ended
	received(t, server, "session.close", 1)
	if got := len(server.Received("")); got != 2 {
		t.Errorf("events that the server received = %d, want session.start and session.close", got)
	}
}

func TestSettings_LiveAgentHasALongerCallLimitAndARecordingNotice(t *testing.T) {
	t.Parallel()
	settings, err := agent.ReadSettings([]byte(`{"kind":"openai_live"}`))
	if err != nil {
		t.Fatalf("ReadSettings: %v", err)
	}
	if got := settings.Longest(); got != agent.LongestLive {
		t.Errorf("Longest = %v, want %v", got, agent.LongestLive)
	}
	if notice, _ := settings.NoticeText(); notice == "" {
		t.Error("NoticeText is empty, want the notice of a recording")
	}
	if got := (agent.Settings{Kind: agent.Realtime}).Longest(); got != agent.Longest {
		t.Errorf("Longest of openai_realtime = %v, want %v", got, agent.Longest)
	}
}
