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

// fake is an agent that the test controls. It records the calls of its methods.
type fake struct {
	events chan agent.Event
	mu     sync.Mutex
	seen
}

// seen are the recorded calls.
type seen struct {
	told   []string
	cuts   map[string]time.Duration
	played []string
	result map[string]map[string]any
	said   []string
	frames int
	digits string
	ended  bool
}

// now returns a copy.
func (f *fake) now() seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.seen
	s.told, s.played, s.said, s.cuts, s.result = slices.Clone(s.told), slices.Clone(s.played), slices.Clone(s.said), maps.Clone(s.cuts), maps.Clone(s.result)
	return s
}

func (f *fake) note(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, what)
}
func (f *fake) Begin()                     { f.note("begin") }
func (f *fake) HearAudio([]byte)           { f.mu.Lock(); f.frames++; f.mu.Unlock() }
func (f *fake) HearDigit(d byte)           { f.mu.Lock(); f.digits += string(rune(d)); f.mu.Unlock() }
func (f *fake) Events() <-chan agent.Event { return f.events }
func (f *fake) Say(text string) {
	f.note("say")
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said = append(f.said, text)
}
func (f *fake) Interrupted(item string, played time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cuts[item] = played
}
func (f *fake) Played(item string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.played = append(f.played, item)
}
func (f *fake) ToolResult(id string, text json.RawMessage) {
	f.note("result " + id)
	var result map[string]any
	_ = json.Unmarshal(text, &result)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.result[id] = result
}
func (f *fake) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended {
		f.ended = true
		f.events <- agent.Event{Kind: agent.Closed, Dropped: 7}
		close(f.events)
	}
}

// bridgePhone is a leg whose methods return err.
type bridgePhone struct {
	mu   sync.Mutex
	soon int
	keys string
	to   string
	err  error
}

func (p *bridgePhone) SpeakSoon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.soon++
}

func (p *bridgePhone) SendDigits(_ context.Context, digits string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = digits
	return p.err
}

func (p *bridgePhone) Transfer(_ context.Context, to string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
	return p.err
}

// ear is a detector that returns the next signal that the test sets.
type ear struct{ next Signal }

func (e *ear) Hear([]byte) Signal {
	now := e.next
	e.next = Nothing
	return now
}

// bridgeTalk is a conversation in virtual time. A frame is taken every 20 ms.
type bridgeTalk struct {
	*Conversation
	t      *testing.T
	fake   *fake
	phone  *bridgePhone
	ear    *ear
	opted  []string
	hangUp context.CancelFunc
	over   chan struct{}
	result Result
	ended  time.Duration // after the beginning
	line   []byte        // the audio that was sent, with silence
	mu     sync.Mutex
	stop   chan struct{}
	// fails: frames are not sent.
	fails atomic.Bool
}

var errPhone = errors.New("the telephone says no")

// converse runs test against a conversation that has begun.
func converse(t *testing.T, settings agent.Settings, test func(*bridgeTalk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := &bridgeTalk{
			t: t, phone: &bridgePhone{}, ear: &ear{}, over: make(chan struct{}), stop: make(chan struct{}),
			fake: &fake{events: make(chan agent.Event, 1024), seen: seen{cuts: map[string]time.Duration{}, result: map[string]map[string]any{}}},
		}
		k.Conversation = New(k.fake, Settings{Agent: settings, Longest: 10 * time.Minute, Zone: time.FixedZone("", 3600)}, k.phone, k.ear, func(words string, _ time.Time) {
			k.opted = append(k.opted, words)
			k.fake.note("opted out")
		})
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

func (k *bridgeTalk) pump() {
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

// pass waits in virtual time.
func (k *bridgeTalk) pass(d time.Duration) {
	time.Sleep(d) // virtual
	synctest.Wait()
}

func (k *bridgeTalk) send(events ...agent.Event) {
	for _, e := range events {
		k.fake.events <- e
	}
	synctest.Wait()
}

// speak makes the agent send an item of a length.
func (k *bridgeTalk) speak(item string, length time.Duration) {
	k.send(agent.Event{Kind: agent.Audio, Item: item, Audio: tone(length)}, agent.Event{Kind: agent.ItemDone, Item: item})
}

// hear makes the person loud for a time.
func (k *bridgeTalk) hear(length time.Duration) {
	for range length / (20 * time.Millisecond) {
		k.HearFrame(tone(20 * time.Millisecond))
		k.pass(20 * time.Millisecond)
	}
}

func (k *bridgeTalk) tool(name, args string) {
	k.send(agent.Event{Kind: agent.ToolCall, Tool: name, ID: name, Args: json.RawMessage(args)})
}

// heardAudio returns the length of the loud audio that was sent.
func (k *bridgeTalk) heardAudio() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return agent.Duration(len(k.line) - bytes.Count(k.line, []byte{silence}))
}

// isOver reports whether the conversation has ended.
func (k *bridgeTalk) isOver() bool {
	select {
	case <-k.over:
		return true
	default:
		return false
	}
}

// wantEnd waits for the end and checks its cause and time.
func (k *bridgeTalk) wantEnd(cause callstate.Cause, after, within time.Duration) {
	k.t.Helper()
	<-k.over
	switch {
	case k.result.Cause != cause:
		k.t.Errorf("k.result.Cause = %v, want %v", k.result.Cause, cause)
	case k.ended < after:
		k.t.Errorf("k.ended = %v, want at least %v", k.ended, after)
	case k.ended > within:
		k.t.Errorf("k.ended = %v, want at most %v", k.ended, within)
	}
}

// tone is loud audio.
func tone(length time.Duration) []byte {
	return bytes.Repeat([]byte{0x20, 0xa0}, int(length*agent.BytesPerSecond/time.Second)/2)
}

func hush(length time.Duration) []byte {
	return bytes.Repeat([]byte{silence}, int(length*agent.BytesPerSecond/time.Second))
}
