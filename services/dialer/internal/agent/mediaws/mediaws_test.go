package mediaws_test

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"

	"ringfence.dev/libs/signature"
	"ringfence.dev/libs/ssrf"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/agent/mediaws"
	"ringfence.dev/services/dialer/internal/conversation"
)

// bot is a fake agent. Its field ws is the accepted connection.
type bot struct {
	notice string
	t      *testing.T
	url    string
	server *httptest.Server
	roots  *x509.CertPool
	header chan http.Header
	conn   chan *websocket.Conn
	ws     *websocket.Conn
}

func newBot(t *testing.T) *bot {
	t.Helper()
	b := &bot{t: t, header: make(chan http.Header, 4), conn: make(chan *websocket.Conn, 4), roots: x509.NewCertPool()}
	b.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		ws.SetReadLimit(4 << 20)
		b.header <- r.Header.Clone()
		b.conn <- ws
		<-t.Context().Done()
	}))
	t.Cleanup(func() { b.server.CloseClientConnections(); b.server.Close() })
	b.server.Config.ErrorLog = nil
	b.roots.AddCert(b.server.Certificate())
	b.url = "wss" + strings.TrimPrefix(b.server.URL, "https") + "/agent?x=1"
	return b
}

func local() *ssrf.Guard { return ssrf.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}) }

var spec = agent.Spec{
	CallID: uuid.MustParse(
		"01990000-0000-7000-8000-000000000001",
	), AgentID: uuid.MustParse("01990000-0000-7000-8000-000000000002"),
	Variables: json.RawMessage(`{"name":"Ada"}`), Key: "whsec_agent",
}

func (b *bot) open() agent.Session {
	b.t.Helper()
	mine := spec
	mine.Settings.MediaURL, mine.Notice = b.url, b.notice
	ctx, cancel := context.WithTimeout(b.t.Context(), testkit.Timeout)
	s, err := mediaws.New(local(), b.roots).Open(ctx, mine)
	cancel()
	if err != nil {
		b.t.Fatalf("Open: %v", err)
	}
	b.t.Cleanup(s.Close)
	b.ws = <-b.conn
	return s
}

func (b *bot) next(event string) map[string]any {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), testkit.Timeout)
	defer cancel()
	for {
		_, text, err := b.ws.Read(ctx)
		if err != nil {
			b.t.Fatalf("no %s message: %v", event, err)
		}
		var m map[string]any
		if err := json.Unmarshal(text, &m); err != nil {
			b.t.Fatalf("%s: %v", text, err)
		}
		if m["event"] == event {
			return m
		}
	}
}

func (b *bot) send(text string) {
	b.t.Helper()
	if err := b.ws.Write(b.t.Context(), websocket.MessageText, []byte(text)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bot) play(length time.Duration) {
	audio := make([]byte, int(length*agent.BytesPerSecond/time.Second))
	b.send(`{"event":"media","media":{"payload":"` + base64.StdEncoding.EncodeToString(audio) + `"}}`)
}

func take(t *testing.T, s agent.Session, kind agent.Kind) agent.Event {
	t.Helper()
	limit := time.After(testkit.Timeout)
	for {
		select {
		case e, open := <-s.Events():
			if e.Kind == kind {
				return e
			}
			if !open {
				t.Fatalf("the session ended without %s", kind)
			}
		case <-limit:
			t.Fatalf("no %s", kind)
		}
	}
}

func TestOpen_SignsTheHandshake(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	before := time.Now().Truncate(time.Second)
	b.open()
	header := <-b.header
	value := header.Get(signature.Header)
	unix, err := strconv.ParseInt(strings.TrimPrefix(strings.Split(value, ",")[0], "t="), 10, 64)
	if err != nil {
		t.Fatalf("%s: strconv.ParseInt: %v", value, err)
	}
	signed := time.Unix(unix, 0)
	if signed.Before(before) {
		t.Errorf("time of the signature = %s, want at or after %s", signed, before)
	}
	if now := time.Now(); signed.After(now) {
		t.Errorf("time of the signature = %s, want at or before %s", signed, now)
	}
	if want := signature.Sign("whsec_agent", signed, []byte(spec.CallID.String()+"."+b.url)); value != want {
		t.Errorf("Sign: value = %v, want %v", value, want)
	} else if header.Get(mediaws.CallHeader) != spec.CallID.String() {
		t.Errorf("Sign: header.Get(mediaws.CallHeader) = %q, want %q", header.Get(mediaws.CallHeader), spec.CallID.String())
	}
	for name, values := range header {
		if strings.Contains(strings.Join(values, " "), "whsec_agent") {
			t.Errorf("%s contains the secret", name)
		}
	}
}

func TestOpen_RefusesForbiddenURLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "ws://agents.example/", "https://agents.example/", "wss://u@agents.example/", "wss://agents.example/#x", "wss://127.0.0.1/", "wss://10.0.0.1/",
		"wss://169.254.169.254/", "wss://[::1]/", "wss://localhost/", "wss://0x7f.1/",
	} {
		mine := spec
		mine.Settings.MediaURL = url
		if _, err := mediaws.New(ssrf.New(nil), nil).Open(t.Context(), mine); err == nil {
			t.Error("Open = nil, want an error")
		} else if !strings.Contains(err.Error(), "media_url") {
			t.Errorf(`Open: err = %q, want it to contain "media_url"`, err.Error())
		}
	}
	mine := spec
	mine.Key, mine.Settings.MediaURL = "", "wss://agents.example/"
	if _, err := mediaws.New(ssrf.New(nil), nil).Open(t.Context(), mine); !errors.Is(err, mediaws.ErrUnsigned) {
		t.Errorf("without a secret: %v", err)
	}
	b := newBot(t)
	mine.Key, mine.Settings.MediaURL = "k", b.url
	if _, err := mediaws.New(local(), nil).Open(t.Context(), mine); err == nil {
		t.Error("an unknown certificate: Open = nil, want an error")
	} else if len(b.header) != 0 {
		t.Errorf("an unknown certificate: b.header = %v, want none", b.header)
	}
}

func TestSession_SendsMessagesInTheMediaStreamsFormat(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	s := b.open()
	s.HearAudio(make([]byte, 160)) // dropped, because Begin was not called
	if m := b.next("connected"); m["protocol"] != "Call" {
		t.Errorf(`next: m["protocol"] = %q, want "Call"`, m["protocol"])
	} else if m["version"] != "1.0.0" {
		t.Errorf(`next: m["version"] = %q, want "1.0.0"`, m["version"])
	}
	s.Begin()
	s.Begin()
	begin := b.next("start")
	text, _ := json.Marshal(begin["start"])
	const want = `{"callSid":"01990000-0000-7000-8000-000000000001","customParameters":{"agent_id":"01990000-0000-7000-8000-000000000002",` +
		`"call_id":"01990000-0000-7000-8000-000000000001","disclosure":"Hello, you are talking to an AI assistant.","variables":"{\"name\":\"Ada\"}"},` +
		`"mediaFormat":{"channels":1,"encoding":"audio/x-mulaw","sampleRate":8000},"streamSid":"MZ01990000000070008000000000000001","tracks":["inbound"]}`
	if string(text) != want {
		t.Errorf("text = %q, want %q", string(text), want)
	} else if begin["sequenceNumber"] != "1" {
		t.Errorf(`begin["sequenceNumber"] = %q, want "1"`, begin["sequenceNumber"])
	}
	frame := []byte(strings.Repeat("ab", 80))
	s.HearAudio(frame)
	heard := b.next("media")
	part, _ := heard["media"].(map[string]any)
	switch {
	case part["payload"] != base64.StdEncoding.EncodeToString(frame):
		t.Errorf(`part["payload"] = %v, want base64.StdEncoding.EncodeToString(frame)`, part["payload"])
	case part["chunk"] != "1":
		t.Errorf(`part["chunk"] = %v, want "1"`, part["chunk"])
	case part["timestamp"] != "0":
		t.Errorf(`part["timestamp"] = %v, want "0"`, part["timestamp"])
	case part["track"] != "inbound":
		t.Errorf(`part["track"] = %v, want "inbound"`, part["track"])
	case heard["streamSid"] != begin["streamSid"]:
		t.Errorf(`heard["streamSid"] = %v, want %v`, heard["streamSid"], begin["streamSid"])
	}
	s.HearDigit('7')
	if m := b.next("dtmf"); m["dtmf"].(map[string]any)["digit"] != "7" {
		t.Errorf("%v", m)
	}
	s.Say("Goodbye.")
	if m := b.next("say"); m["say"].(map[string]any)["text"] != "Goodbye." {
		t.Errorf("%v", m)
	}
	s.Close()
	b.next("stop")
	take(t, s, agent.Closed)
}

func TestMark_IsReturnedAfterAllPrecedingAudioWasPlayed(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	s := b.open()
	s.Begin()
	b.play(time.Second)
	b.send(`{"event":"mark","mark":{"name":"first"}}`)
	b.play(time.Second)
	b.send(`{"event":"mark","mark":{"name":"second"}}`)
	b.send(`{"event":"clear"}`)
	b.play(time.Second)
	first := take(t, s, agent.Audio)
	switch done := take(t, s, agent.ItemDone); {
	case done.Item != first.Item:
		t.Errorf("done.Item = %v, want %v", done.Item, first.Item)
	case len(first.Audio) != 8000:
		t.Errorf("length of first.Audio = %v, want 8000", len(first.Audio))
	case first.Keep:
		t.Error("first.Keep = true, want false")
	}
	second := take(t, s, agent.Audio)
	take(t, s, agent.Clear)
	third := take(t, s, agent.Audio)
	if first.Item == second.Item {
		t.Errorf("first.Item = %v, want another value", first.Item)
	} else if second.Item == third.Item {
		t.Errorf("second.Item = %v, want another value", second.Item)
	}
	b.send(`{"event":"clear"}`) // the third item ends without a mark
	b.play(time.Second)
	if fourth := take(t, s, agent.Audio); fourth.Item == third.Item {
		t.Error("audio after a clear belongs to the item before it")
	}
	s.Played("nonsense")
	s.Interrupted(second.Item, 200*time.Millisecond)
	s.Played(first.Item)
	s.Played(first.Item)
	s.Played(third.Item) // this item has no mark
	s.HearDigit('1')
	var names []string
	for range 2 {
		names = append(names, b.next("mark")["mark"].(map[string]any)["name"].(string))
	}
	if strings.Join(names, " ") != "second first" {
		t.Errorf("returned marks = %v", names)
	}
	if m := b.next("dtmf"); m == nil {
		t.Error("a mark was returned twice")
	}
}

// The audio before the mark recording_notice is the recording notice. If there is no such audio, or
// if the call is not recorded, the session must not emit Noticed.
func TestRecordingNoticeMark_EmitsTheNoticedEvent(t *testing.T) {
	t.Parallel()
	for _, notice := range []string{"", "This call is recorded."} {
		b := newBot(t)
		b.notice = notice
		s := b.open()
		s.Begin()
		got := b.next("start")["start"].(map[string]any)["customParameters"].(map[string]any)["recording_notice"]
		if notice == "" && got != nil {
			t.Errorf("notice of the message = %v, want nil", got)
		} else if notice != "" && got != notice {
			t.Errorf("notice of the message = %v, want %v", got, notice)
		}
		b.send(`{"event":"mark","mark":{"name":"recording_notice"}}`)
		b.play(time.Second)
		b.send(`{"event":"mark","mark":{"name":"recording_notice"}}`)
		b.send(`{"event":"hangup"}`)
		var audioItems, noticed []string
		for e := range s.Events() {
			switch e.Kind {
			case agent.Audio:
				audioItems = append(audioItems, e.Item)
			case agent.Noticed:
				noticed = append(noticed, e.Item)
			case agent.Closed:
				s.Close()
			}
		}
		if notice == "" && len(noticed) > 0 {
			t.Errorf("noticed = %v, want none", noticed)
		} else if notice != "" && (!slices.Equal(noticed, audioItems)) {
			t.Errorf("noticed = %v, want %v", noticed, audioItems)
		}
	}
}

func TestMark_IsReturnedAfterAConversationHasPlayedTheAudio(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	s := b.open()
	c := conversation.New(s, conversation.Settings{}, nil, nil, nil)
	over := make(chan conversation.Result, 1)
	go func() { over <- c.Run(t.Context()) }()
	b.next("start")
	b.play(100 * time.Millisecond)
	b.send(`{"event":"mark","mark":{"name":"end"}}`)
	b.send(`{"event":"tool","tool":{"id":"t","name":"format_disk"}}`)
	// The agent receives this result after the conversation has queued the audio and the mark.
	b.next("tool_result")
	frame, n := make([]byte, 160), 0
	for range 10 {
		if c.NextFrame(frame) {
			n++
		}
	}
	if m := b.next("mark"); n != 5 {
		t.Errorf("next: n = %v, want 5", n)
	} else if m["mark"].(map[string]any)["name"] != "end" {
		t.Errorf(`next: m["mark"].(map[string]any)["name"] = %q, want "end"`, m["mark"].(map[string]any)["name"])
	}
	b.send(`{"event":"hangup"}`)
	if r := <-over; r.Cause != "normal_clearing" {
		t.Errorf("%+v", r)
	}
	b.next("stop")
}

func TestSession_ReceivesTranscriptsAndToolCalls(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	s := b.open()
	s.Begin()
	b.send(`{"event":"from_the_future"}`)
	b.send(`{"event":"transcript","transcript":{"role":"robot","text":"no"}}`)
	b.send(`{"event":"transcript","transcript":{"role":"person","text":"Hello?"}}`)
	if utterance := take(t, s, agent.Utterance); utterance.Text != "Hello?" {
		t.Errorf(`take: utterance.Text = %q, want "Hello?"`, utterance.Text)
	} else if utterance.Role != agent.RolePerson {
		t.Errorf("take: utterance.Role = %v, want %v", utterance.Role, agent.RolePerson)
	}
	b.send(`{"event":"tool","tool":{"id":"1","name":"opt_out","args":{"quote":"never again"}}}`)
	called := take(t, s, agent.ToolCall)
	if called.Tool != agent.ToolOptOut {
		t.Errorf("called.Tool = %v, want %v", called.Tool, agent.ToolOptOut)
	} else if string(called.Args) != `{"quote":"never again"}` {
		t.Errorf("called.Args = %q, want %q", string(called.Args), `{"quote":"never again"}`)
	}
	s.ToolResult("another", json.RawMessage(`{}`))
	s.ToolResult("1", json.RawMessage(`{"state":"noted"}`))
	if m := b.next("tool_result"); m["toolResult"].(map[string]any)["id"] != "1" {
		t.Errorf("%v", m)
	}
}

func TestSession_LastEventShowsWhetherTheAgentFailed(t *testing.T) {
	t.Parallel()
	huge := `{"event":"media","x":"` + strings.Repeat("x", 2<<20) + `"}`
	for name, test := range map[string]struct {
		do   func(*bot)
		want agent.Kind
	}{
		"agent closes the socket normally": {
			func(b *bot) { _ = b.ws.Close(websocket.StatusNormalClosure, "") }, agent.Closed,
		},
		"agent closes the socket as going away": {
			func(b *bot) { _ = b.ws.Close(websocket.StatusGoingAway, "") }, agent.Closed,
		},
		"agent sends hangup": {func(b *bot) { b.send(`{"event":"hangup"}`) }, agent.Closed},
		"connection lost":    {func(b *bot) { _ = b.ws.CloseNow() }, agent.Failed},
		"agent closes the socket with an error": {
			func(b *bot) { _ = b.ws.Close(websocket.StatusInternalError, "") }, agent.Failed,
		},
		"message is not JSON": {func(b *bot) { b.send(`{`) }, agent.Failed},
		"audio is not base64": {
			func(b *bot) { b.send(`{"event":"media","media":{"payload":"*"}}`) }, agent.Failed,
		},
		"media message without audio": {func(b *bot) { b.send(`{"event":"media"}`) }, agent.Failed},
		"message above the size limit": {
			func(b *bot) { _ = b.ws.Write(context.Background(), websocket.MessageText, []byte(huge)) }, agent.Failed,
		},
		"too many marks that are not played": {
			func(b *bot) { b.many(1100, `{"event":"mark","mark":{"name":"m"}}`) }, agent.Failed,
		},
		"too many tool calls": {
			func(b *bot) { b.many(210, `{"event":"tool","tool":{"id":"1","name":"opt_out"}}`) }, agent.Failed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBot(t)
			s := b.open()
			s.Begin()
			b.next("start")
			go test.do(b)
			limit := time.After(testkit.Timeout)
			for {
				select {
				case e := <-s.Events():
					if e.Kind == agent.Closed || e.Kind == agent.Failed {
						if e.Kind != test.want {
							t.Errorf("last event = %s: %v", e.Kind, e.Err)
						}
						return
					}
				case <-limit:
					t.Fatal("the session did not end")
				}
			}
		})
	}
}

func (b *bot) many(n int, text string) {
	for range n {
		if b.ws.Write(context.Background(), websocket.MessageText, []byte(text)) != nil {
			return
		}
	}
}
