package agent

import (
	"context"
	"encoding/json"
	"math"
	"sync"
	"time"
)

// StartTimer calls f once after the given wait, unless stop is called first. In production, it
// wraps time.AfterFunc.
type StartTimer func(wait time.Duration, f func()) (stop func() bool)

// ScriptedOpener opens sessions of the scripted agent. A session plays a script.
type ScriptedOpener struct{ startTimer StartTimer }

// New returns an opener. Its sessions wait with startTimer.
func New(startTimer StartTimer) *ScriptedOpener { return &ScriptedOpener{startTimer} }

// Open opens a session and returns immediately.
func (o *ScriptedOpener) Open(_ context.Context, spec Spec) (Session, error) {
	return &session{
		script:     spec.Settings.Script,
		notice:     spec.Notice != "",
		startTimer: o.startTimer,
		events:     make(chan Event, 12),
	}, nil
}

// session plays a script: a tone, then silence, then the end of the call. It does not react to the
// person.
type session struct {
	script     Script
	notice     bool
	startTimer StartTimer
	events     chan Event

	mu      sync.Mutex
	started bool
	ended   bool
	stop    func() bool
}

// tone and notice are ids of items. wordsMillis is the length, in ms, of the tone that is played
// instead of words.
const (
	tone, notice = "tone", "notice"
	wordsMillis  = 500
)

func (s *session) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.ended {
		return
	}
	s.started = true
	if s.notice && s.script.Speaks {
		s.events <- Event{Kind: Audio, Item: notice, Audio: Tone(max(s.script.ToneHz, 1), wordsMillis), Keep: true}
		s.events <- Event{Kind: ItemDone, Item: notice}
		s.events <- Event{Kind: Noticed, Item: notice}
	}
	s.playTone(s.script.ToneMillis, false)
	if s.script.EndAfterMillis > 0 {
		s.stop = s.startTimer(time.Duration(s.script.EndAfterMillis)*time.Millisecond, s.Close)
	}
}

// playTone queues a tone, and drops it if the channel is full. fromSay is true if Say requested the
// tone.
func (s *session) playTone(millis int, fromSay bool) {
	if millis == 0 || len(s.events)+3 > cap(s.events)-1 {
		return
	}
	s.events <- Event{Kind: Audio, Item: tone, Audio: Tone(max(s.script.ToneHz, 1), millis), Keep: fromSay, Asked: fromSay}
	s.events <- Event{Kind: ItemDone, Item: tone}
	s.events <- Event{Kind: TurnDone}
}

// Say plays half a second of the tone, instead of the words.
func (s *session) Say(string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.playTone(wordsMillis, true)
	}
}

func (s *session) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	if s.stop != nil {
		s.stop()
	}
	s.events <- Event{Kind: Closed}
	close(s.events)
}

func (s *session) Events() <-chan Event               { return s.events }
func (s *session) HearAudio([]byte)                   {}
func (s *session) HearDigit(byte)                     {}
func (s *session) Interrupted(string, time.Duration)  {}
func (s *session) Played(string)                      {}
func (s *session) ToolResult(string, json.RawMessage) {}

// Tone returns a sine wave in mu-law, with a quarter of the full amplitude.
func Tone(hz, millis int) []byte {
	audio := make([]byte, millis*BytesPerSecond/1000)
	for i := range audio {
		audio[i] = mulaw(int(8000 * math.Sin(2*math.Pi*float64(hz)*float64(i)/BytesPerSecond)))
	}
	return audio
}

// mulaw encodes one 16-bit sample (ITU-T G.711).
func mulaw(sample int) byte {
	const bias, clip = 0x84, 32635
	sign := byte(0)
	if sample < 0 {
		sample, sign = -sample, 0x80
	}
	sample = min(sample, clip) + bias
	exponent := 7
	for mask := 0x4000; exponent > 0 && sample&mask == 0; mask >>= 1 {
		exponent--
	}
	return ^(sign | byte(exponent)<<4 | byte(sample>>(exponent+3))&0x0f)
}
