package conversation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/callstate"
)

type fakeSession struct {
	events chan agent.Event
	mu     sync.Mutex
	sessionCalls
}

type sessionCalls struct {
	calls    []string
	cuts     map[string]time.Duration
	played   []string
	result   map[string]map[string]any
	sayTexts []string
	frames   int
	digits   string
	ended    bool
}

func (f *fakeSession) soFar() sessionCalls {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sessionCalls
	s.calls, s.played, s.sayTexts, s.cuts, s.result = slices.Clone(
		s.calls,
	), slices.Clone(
		s.played,
	), slices.Clone(
		s.sayTexts,
	), maps.Clone(
		s.cuts,
	), maps.Clone(
		s.result,
	)
	return s
}

func (f *fakeSession) note(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, what)
}
func (f *fakeSession) Begin()                     { f.note("begin") }
func (f *fakeSession) HearAudio([]byte)           { f.mu.Lock(); f.frames++; f.mu.Unlock() }
func (f *fakeSession) HearDigit(d byte)           { f.mu.Lock(); f.digits += string(rune(d)); f.mu.Unlock() }
func (f *fakeSession) Events() <-chan agent.Event { return f.events }
func (f *fakeSession) Say(text string) {
	f.note("say")
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sayTexts = append(f.sayTexts, text)
}
func (f *fakeSession) Interrupted(item string, played time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cuts[item] = played
}
func (f *fakeSession) Played(item string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.played = append(f.played, item)
}
func (f *fakeSession) ToolResult(id string, text json.RawMessage) {
	f.note("result " + id)
	var result map[string]any
	_ = json.Unmarshal(text, &result)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.result[id] = result
}
func (f *fakeSession) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended {
		f.ended = true
		f.events <- agent.Event{Kind: agent.Closed, Dropped: 7}
		close(f.events)
	}
}

type fakeLeg struct {
	mu   sync.Mutex
	soon int
	keys string
	to   string
	err  error
}

func (p *fakeLeg) SpeakSoon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.soon++
}

func (p *fakeLeg) SendDigits(_ context.Context, digits string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = digits
	return p.err
}

func (p *fakeLeg) Transfer(_ context.Context, to string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
	return p.err
}

type fakeDetector struct{ next Signal }

func (e *fakeDetector) Hear([]byte) Signal {
	now := e.next
	e.next = Nothing
	return now
}

// conversationTest is a conversation in virtual time. It takes a frame every 20 ms, as a media
// stream does.
type conversationTest struct {
	*Conversation
	t            *testing.T
	fakeSession  *fakeSession
	phone        *fakeLeg
	fakeDetector *fakeDetector
	opted        []string
	hangUp       context.CancelFunc
	over         chan struct{}
	result       Result
	ended        time.Duration // time from the start to the end of the conversation
	line         []byte        // sent audio, with silence where none was sent
	mu           sync.Mutex
	stop         chan struct{}
	fails        atomic.Bool
}

var errPhone = errors.New("the telephone says no")

func converse(t *testing.T, settings agent.Settings, test func(*conversationTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := &conversationTest{
			t: t, phone: &fakeLeg{}, fakeDetector: &fakeDetector{}, over: make(chan struct{}), stop: make(chan struct{}),
			fakeSession: &fakeSession{
				events:       make(chan agent.Event, 1024),
				sessionCalls: sessionCalls{cuts: map[string]time.Duration{}, result: map[string]map[string]any{}},
			},
		}
		k.Conversation = New(
			k.fakeSession,
			Settings{Agent: settings, Longest: 10 * time.Minute, Zone: time.FixedZone("", 3600)},
			k.phone,
			k.fakeDetector,
			func(words string, _ time.Time) {
				k.opted = append(k.opted, words)
				k.fakeSession.note("opted out")
			},
		)
		ctx, cancel := context.WithCancel(t.Context())
		k.hangUp = cancel
		begun := time.Now()
		go func() {
			defer close(k.over)
			k.result = k.Run(ctx)
			k.ended = time.Since(begun)
		}()
		go k.pump()
		synctest.Wait()
		test(k)
		cancel()
		<-k.over
		close(k.stop)
		synctest.Wait()
	})
}

func (k *conversationTest) pump() {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-k.stop:
			return
		case <-ticker.C:
		}
		frame := bytes.Repeat([]byte{silence}, 160)
		if k.NextFrame(frame) && k.fails.Load() {
			k.FrameUnsent()
			continue
		}
		k.mu.Lock()
		k.line = append(k.line, frame...)
		k.mu.Unlock()
	}
}

func (k *conversationTest) pass(d time.Duration) {
	time.Sleep(d) // virtual time
	synctest.Wait()
}

func (k *conversationTest) send(events ...agent.Event) {
	for _, e := range events {
		k.fakeSession.events <- e
	}
	synctest.Wait()
}

func (k *conversationTest) speak(item string, length time.Duration) {
	k.send(
		agent.Event{Kind: agent.Audio, Item: item, Audio: tone(length)},
		agent.Event{Kind: agent.ItemDone, Item: item},
	)
}

func (k *conversationTest) hear(length time.Duration) {
	for range length / (20 * time.Millisecond) {
		k.HearFrame(tone(20 * time.Millisecond))
		k.pass(20 * time.Millisecond)
	}
}

func (k *conversationTest) tool(name, args string) {
	k.send(agent.Event{Kind: agent.ToolCall, Tool: name, ID: name, Args: json.RawMessage(args)})
}

func (k *conversationTest) heardAudio() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return agent.Duration(len(k.line) - bytes.Count(k.line, []byte{silence}))
}

func (k *conversationTest) isOver() bool {
	select {
	case <-k.over:
		return true
	default:
		return false
	}
}

func (k *conversationTest) wantEnd(cause callstate.Cause, after, within time.Duration) {
	k.t.Helper()
	<-k.over
	switch {
	case k.result.Cause != cause:
		k.t.Errorf("hangup cause = %v, want %v", k.result.Cause, cause)
	case k.ended < after:
		k.t.Errorf("time of the end = %v, want at least %v", k.ended, after)
	case k.ended > within:
		k.t.Errorf("time of the end = %v, want at most %v", k.ended, within)
	}
}

func tone(length time.Duration) []byte {
	return bytes.Repeat([]byte{0x20, 0xa0}, int(length*agent.BytesPerSecond/time.Second)/2)
}

func hush(length time.Duration) []byte {
	return bytes.Repeat([]byte{silence}, int(length*agent.BytesPerSecond/time.Second))
}
