package realtime_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"ringfence.dev/libs/ssrf"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/agent/modeltest"
	"ringfence.dev/services/dialer/internal/agent/realtime"
)

type line struct {
	agent.Session
	t      *testing.T
	server *modeltest.RealtimeServer
	mu     sync.Mutex
	events []agent.Event
	more   chan struct{}
	ended  chan struct{}
}

func serve(t *testing.T, opts modeltest.RealtimeOptions) *modeltest.RealtimeServer {
	t.Helper()
	server := modeltest.NewRealtime(opts)
	t.Cleanup(server.Close)
	return server
}

func opener(server *modeltest.RealtimeServer) *realtime.Opener {
	return realtime.New(
		realtime.Config{
			URL:                server.URL,
			Key:                "operator",
			Model:              "gpt-realtime",
			TranscriptionModel: "gpt-4o-mini-transcribe",
		},
		ssrf.New(nil),
		nil,
	)
}

func open(t *testing.T, server *modeltest.RealtimeServer, settings agent.Settings) *line {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Timeout)
	s, err := opener(
		server,
	).Open(
		ctx,
		agent.Spec{Settings: settings, Now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)},
	)
	cancel() // the session must outlive ctx
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return listen(t, server, s)
}

func listen(t *testing.T, server *modeltest.RealtimeServer, s agent.Session) *line {
	t.Helper()
	l := &line{Session: s, t: t, server: server, more: make(chan struct{}, 1), ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		for e := range s.Events() {
			l.mu.Lock()
			l.events = append(l.events, e)
			l.mu.Unlock()
			select {
			case l.more <- struct{}{}:
			default:
			}
		}
	}()
	t.Cleanup(func() { s.Close(); <-l.ended })
	return l
}

func (l *line) all(kind agent.Kind) (found []agent.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.Kind == kind {
			found = append(found, e)
		}
	}
	return found
}

func (l *line) wait(kind agent.Kind, n int) agent.Event {
	l.t.Helper()
	deadline := time.After(testkit.Timeout)
	for {
		if found := l.all(kind); len(found) >= n {
			return found[n-1]
		}
		select {
		case <-l.more:
		case <-time.After(5 * time.Millisecond):
		case <-deadline:
			l.mu.Lock()
			defer l.mu.Unlock()
			var kinds []agent.Kind
			for _, e := range l.events {
				kinds = append(kinds, e.Kind)
			}
			l.t.Fatalf("fewer than %d events of kind %s; events: %v", n, kind, kinds)
		}
	}
}

func waitReceived(t *testing.T, server *modeltest.RealtimeServer, kind string, n int) map[string]any {
	t.Helper()
	var found []json.RawMessage
	testkit.NoError(t, func() error {
		if found = server.Received(kind); len(found) < n {
			return fmt.Errorf("events of type %s = %d, want %d", kind, len(found), n)
		}
		return nil
	})
	var event map[string]any
	if err := json.Unmarshal(found[n-1], &event); err != nil {
		t.Fatal(err)
	}
	return event
}

func (l *line) checkNoErrors() {
	l.t.Helper()
	if faults := l.server.Sent("error"); len(faults) > 0 {
		l.t.Errorf("refused events = %s, want none", faults)
	}
}

func dig(from any, path ...string) any {
	for _, name := range path {
		object, _ := from.(map[string]any)
		from = object[name]
	}
	return from
}

func TestOpen_ConfiguresTheModel(t *testing.T) {
	t.Parallel()
	server := serve(t, modeltest.RealtimeOptions{Key: "operator"})
	settings := agent.Settings{
		Instructions: "Sell tea to {{name}}.",
		Voice:        "marin",
		Language:     "de-CH",
		Transfers:    map[string]string{"desk": "+41440000000"},
	}
	l := open(t, server, settings)
	update := waitReceived(t, server, "session.update", 1)
	for want, path := range map[string][]string{
		"audio/pcmu ": {"audio", "input", "format", "type"}, "audio/pcmu": {"audio", "output", "format", "type"},
		"marin":    {"audio", "output", "voice"},
		"realtime": {"type"}, "gpt-4o-mini-transcribe": {"audio", "input", "transcription", "model"}, "de": {"audio", "input",
			"transcription", "language"},
	} {
		if value := dig(update, append([]string{"session"}, path...)...); value != strings.TrimSpace(want) {
			t.Errorf("%v = %v, want %s", path, value, want)
		}
	}
	var names []string
	list, _ := dig(update, "session", "tools").([]any)
	for _, one := range list {
		name, _ := dig(one, "name").(string)
		names = append(names, name)
	}
	if got := strings.Join(names, " "); got != "end_call opt_out schedule_callback voicemail_detected press_digits "+
		"transfer" {
		t.Errorf("tools %s", got)
	}
	l.HearAudio(bytes.Repeat([]byte{0xff}, 160))
	l.Begin()
	l.wait(agent.TurnDone, 1)
	if server.Frames() != 0 {
		t.Error("the model received audio before Begin")
	}
	l.checkNoErrors()
}

func TestOpen_FailsIfTheModelDoesNotConfirmTheSession(t *testing.T) {
	t.Parallel()
	t.Run("wrong key", func(t *testing.T) {
		t.Parallel()
		server := serve(t, modeltest.RealtimeOptions{Key: "another"})
		if _, err := opener(server).Open(t.Context(), agent.Spec{}); err == nil {
			t.Error("Open = nil, want an error")
		} else if strings.Contains(err.Error(), "operator") {
			t.Errorf(`Open: err = %q, want it without "operator"`, err.Error())
		}
	})
	t.Run("no confirmation", func(t *testing.T) {
		t.Parallel()
		server := serve(t, modeltest.RealtimeOptions{})
		server.Mute()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := opener(server).Open(ctx, agent.Spec{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Open = %v, want the deadline", err)
		}
	})
	t.Run("no key", func(t *testing.T) {
		t.Parallel()
		o := realtime.New(realtime.Config{URL: "ws://127.0.0.1:1"}, ssrf.New(nil), nil)
		if _, err := o.Open(t.Context(), agent.Spec{}); !errors.Is(err, realtime.ErrUnconfigured) {
			t.Errorf("Open = %v, want %v", err, realtime.ErrUnconfigured)
		}
	})
	t.Run("refused settings", func(t *testing.T) {
		t.Parallel()
		server := serve(t, modeltest.RealtimeOptions{})
		server.Mute()
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Timeout)
		defer cancel()
		opened := make(chan error, 1)
		go func() {
			_, err := opener(server).Open(ctx, agent.Spec{})
			opened <- err
		}()
		testkit.Until(t, "the session is connected", func() bool { return server.Connections() > 0 })
		server.Inject(
			[]byte(
				`{"type":"error","error":{"type":"invalid_request_error","code":"model_not_found","message":"secret"}}`,
			),
		)
		err := <-opened
		if err == nil {
			t.Fatal("Open returned no error, want the code of the model's error")
		}
		if got, want := err.Error(), "model_not_found"; !strings.Contains(got, want) {
			t.Errorf("Open = %q, want an error with %q", got, want)
		}
		if got := err.Error(); strings.Contains(got, "secret") {
			t.Errorf("Open = %q, want an error without the message of the model", got)
		}
	})
}

// The SSRF guard must check an agent's base_url, which requires TLS. The host of this URL must
// receive only the workspace's key.
func TestOpen_GuardChecksTheBaseURLOfAnAgent(t *testing.T) {
	t.Parallel()
	server := serve(t, modeltest.RealtimeOptions{})
	for _, base := range []string{server.URL, "wss://127.0.0.1:1/v1", "wss://10.0.0.1/v1", "wss://169.254.169.254", "https://models.example/v1", "wss://u:p@models.example"} {
		if _, err := opener(server).Open(t.Context(), agent.Spec{Key: "own",
			Settings: agent.Settings{BaseURL: base}}); err == nil {
			t.Error("Open = nil, want an error")
		} else if !strings.Contains(err.Error(), "base_url") {
			t.Errorf(`Open: err = %q, want it to contain "base_url"`, err.Error())
		}
	}
	if _, err := opener(server).Open(t.Context(),
		agent.Spec{Settings: agent.Settings{BaseURL: "wss://models.example/v1"}}); !errors.Is(
		err,
		realtime.ErrUnconfigured,
	) {
		t.Errorf("Open = %v: the operator's key must not go to a customer's host", err)
	}
	if server.Connections() != 0 {
		t.Error("a connection was opened")
	}
}

func TestBegin_SpeaksTheDisclosureFirst(t *testing.T) {
	t.Parallel()
	server := serve(t, modeltest.RealtimeOptions{})
	l := open(t, server, agent.Settings{Language: "de", Greeting: "Hier ist {{who}}."})
	l.Begin()
	l.Begin()
	l.wait(agent.TurnDone, 2)
	utterances := l.all(agent.Utterance)
	switch {
	case len(utterances) != 2:
		t.Errorf("length of utterances = %v, want 2", len(utterances))
	case utterances[0].Text != "Guten Tag, Sie sprechen mit einem KI-Assistenten.":
		t.Errorf(`utterances[0].Text = %v, want "Guten Tag, Sie sprechen mit einem KI-Assistenten."`,
			utterances[0].Text)
	case utterances[1].Text != "Hier ist .":
		t.Errorf(`utterances[1].Text = %v, want "Hier ist ."`, utterances[1].Text)
	case utterances[0].Role != agent.RoleAgent:
		t.Errorf("utterances[0].Role = %v, want %v", utterances[0].Role, agent.RoleAgent)
	}
	for _, e := range l.all(agent.Audio) {
		if e.Keep != (e.Item == utterances[0].Item) {
			t.Errorf("audio of %s: keep %v", e.Item, e.Keep)
		}
	}
	first, answers := waitReceived(t, server, "session.update", 1), waitReceived(t, server, "session.update", 2)
	for _, setting := range []string{"create_response", "interrupt_response"} {
		path := []string{"session", "audio", "input", "turn_detection", setting}
		if got := dig(first, path...); got != false {
			t.Errorf("%s: dig(first, path...) = %v, want false", setting, got)
		} else if got := dig(answers, path...); got != true {
			t.Errorf("%s: dig(answers, path...) = %v, want true", setting, got)
		}
	}
	l.checkNoErrors()
}

func TestBegin_StartsTheConversationIfThereIsNoDisclosure(t *testing.T) {
	t.Parallel()
	server := serve(t, modeltest.RealtimeOptions{})
	l := open(t, server, agent.Settings{Disclosure: agent.Disclosure{OffReason: "employees"}})
	l.Begin()
	if utterance := l.wait(agent.Utterance, 1); utterance.Text != "Good day." {
		t.Errorf("first text = %q", utterance.Text)
	}
	for _, e := range l.all(agent.Audio) {
		if e.Keep {
			t.Error("a greeting is kept")
		}
	}
	l.checkNoErrors()
}

func TestBegin_RequestsAMissingDisclosureAgain(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"failed", "completed"} { // a model can complete a response without sound
		server := serve(t, modeltest.RealtimeOptions{Reply: func(_, asked string, n int) modeltest.RealtimeReply {
			if n == 1 {
				return modeltest.RealtimeReply{Status: status}
			}
			return modeltest.RealtimeReply{Text: modeltest.QuotedRealtime(asked, "Good day.")}
		}})
		l := open(t, server, agent.Settings{})
		l.Begin()
		if utterance := l.wait(agent.Utterance, 2); !strings.Contains(l.all(agent.Utterance)[0].Text, "AI assistant") {
			t.Errorf(`%s without a sound: l.all(agent.Utterance)[0].Text = %q, want it to contain "AI assistant"`,
				status, l.all(agent.Utterance)[0].Text)
		} else if utterance.Text != "Good day." {
			t.Errorf(`%s without a sound: utterance.Text = %q, want "Good day."`, status, utterance.Text)
		}
		l.checkNoErrors()
	}
}

func lineAfterGreeting(t *testing.T, opts modeltest.RealtimeOptions) *line {
	t.Helper()
	l := open(t, serve(t, opts), agent.Settings{})
	l.Begin()
	l.wait(agent.TurnDone, 2)
	return l
}

func TestInterruption_TruncatesTheItemAfterThePlayedAudio(t *testing.T) {
	t.Parallel()
	l := lineAfterGreeting(t, modeltest.RealtimeOptions{})
	greeting := l.all(agent.Utterance)[1].Item
	length := 0
	for _, e := range l.all(agent.Audio) {
		if e.Item == greeting {
			length += len(e.Audio)
		}
	}
	l.server.Speak("Stop.")
	l.wait(agent.SpeechStarted, 1)
	l.Interrupted(greeting, 345*time.Millisecond)
	l.Interrupted(greeting, 300*time.Millisecond)
	switch e := waitReceived(t, l.server, "conversation.item.truncate", 1); {
	case e["item_id"] != greeting:
		t.Errorf(`e["item_id"] = %v, want %v`, e["item_id"], greeting)
	case e["audio_end_ms"] != 345.0:
		t.Errorf(`e["audio_end_ms"] = %v, want 345.0`, e["audio_end_ms"])
	case e["content_index"] != 0.0:
		t.Errorf(`e["content_index"] = %v, want 0.0`, e["content_index"])
	}
	answer := l.wait(agent.Utterance, 4) // the person's utterance can arrive after the model's answer
	if answer.Role == agent.RolePerson {
		answer = l.all(agent.Utterance)[2]
	}
	l.wait(agent.TurnDone, 3)
	l.Interrupted(answer.Item, time.Hour)
	if e := waitReceived(t, l.server, "conversation.item.truncate", 2); e["audio_end_ms"].(float64) > 60*float64(
		len(answer.Text),
	) {
		t.Errorf("truncated at %v, beyond the audio", e)
	}
	l.Interrupted("another", time.Second)
	l.Say("Bye.")
	last := l.wait(agent.Utterance, 5)
	l.wait(agent.TurnDone, 4)
	l.Played(last.Item)
	l.Interrupted(last.Item, time.Millisecond) // no effect: the item was played to its end
	l.ToolResult("unknown", nil)
	l.HearDigit('5')
	waitReceived(t, l.server, "response.create", 4) // disclosure, greeting, farewell, and the response to the digit
	if n := len(l.server.Received("conversation.item.truncate")); n != 2 {
		t.Errorf("truncations = %d, want 2", n)
	}
	l.checkNoErrors()
}
