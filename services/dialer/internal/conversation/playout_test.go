package conversation

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ringfence.dev/services/dialer/internal/agent"
)

// The frames must contain the bytes of the pieces, in the order of the pieces. Silence may follow
// only at the end of an item.
func TestPlayout_PiecesOfAnySizeBecomeFrames(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var q playout
		var want, got []byte
		for i, size := range rapid.SliceOfN(rapid.IntRange(1, 900), 1, 30).Draw(t, "sizes") {
			audio := bytes.Repeat([]byte{byte(i%200 + 1)}, size)
			want = append(want, audio...)
			q.addAudio(string(rune('a'+i/7)), audio, false)
			if i%7 == 6 {
				q.finishItem(string(rune('a' + i/7)))
			}
			for range rapid.IntRange(0, 3).Draw(t, "ticks") {
				got = appendFrame(&q, got)
			}
		}
		for range 400 {
			got = appendFrame(&q, got)
		}
		if !bytes.Equal(bytes.ReplaceAll(got, []byte{silence}, nil), want) {
			t.Fatalf("the %d bytes taken differ from the bytes added", len(want))
		}
		if q.queuedBytes != 0 {
			t.Fatalf("depth at the end = %d, want 0", q.queuedBytes)
		}
	})
}

func appendFrame(q *playout, got []byte) []byte {
	frame := make([]byte, 160)
	if spoke, _ := q.nextFrame(frame); spoke {
		got = append(got, frame...)
	}
	return got
}

func TestPlayout_PartialFrameWaitsForTheRestOfItsAudio(t *testing.T) {
	t.Parallel()
	var q playout
	frame := make([]byte, 160)
	q.addAudio("a", tone(10*time.Millisecond), false)
	for tick := range partialFrameTicks {
		if spoke, _ := q.nextFrame(frame); spoke {
			t.Fatalf("a partial frame was sent at tick %d", tick)
		}
	}
	if spoke, _ := q.nextFrame(frame); !spoke {
		t.Error("partial frame after the wait: spoke = false, want true")
	} else if frame[80] != silence {
		t.Errorf("partial frame after the wait: frame[80] = %v, want %v", frame[80], silence)
	}
}

func TestPlayout_DropsAudioBeyondItsLimit(t *testing.T) {
	t.Parallel()
	var q playout
	for range 400 {
		q.addAudio("a", make([]byte, agent.BytesPerSecond), false)
	}
	if q.queuedBytes != maxQueued {
		t.Errorf("queue depth = %v, want %v", q.queuedBytes, maxQueued)
	} else if q.dropped != 100*agent.BytesPerSecond {
		t.Errorf("dropped bytes = %v, want %v", q.dropped, 100*agent.BytesPerSecond)
	}
}

func TestNextFrame_AllocatesNothing(t *testing.T) {
	c := New(&fakeSession{events: make(chan agent.Event, 1)}, Settings{}, nil, nil, nil)
	c.Record(discard{})
	for range 100 {
		c.queue.addAudio("a", tone(time.Second), false)
	}
	frame, heard := make([]byte, 160), tone(20*time.Millisecond)
	if n := testing.AllocsPerRun(2000, func() { c.NextFrame(frame); c.HearFrame(heard) }); n != 0 {
		t.Errorf("allocations per frame = %v, want 0", n)
	}
}

type discard struct{}

func (discard) Tick(_, _ []byte) {}

// newLateQueue returns a queue that was played for the given number of seconds, and the length of
// the remaining audio. audioAt returns the audio that arrives at a tick.
func newLateQueue(
	t *testing.T,
	initialSilence time.Duration,
	seconds int,
	audioAt func(tick int) []byte,
) (q playout, queued time.Duration) {
	t.Helper()
	q.addAudio("a", hush(initialSilence), false)
	frame := make([]byte, 160)
	for tick := range seconds * 50 {
		if audio := audioAt(tick); audio != nil {
			q.addAudio("a", audio, false)
		}
		q.nextFrame(frame)
	}
	return q, agent.Duration(q.queuedBytes)
}

func TestPlayout_TrimsSilenceOfAPermanentlyLateAgent(t *testing.T) {
	t.Parallel()
	q, depth := newLateQueue(t, 500*time.Millisecond, 10, func(int) []byte { return hush(20 * time.Millisecond) })
	if depth > 20*time.Millisecond {
		t.Errorf("depth = %v, want at most %v", depth, 20*time.Millisecond)
	} else if q.trimmed == 0 {
		t.Error("trimmed frames = 0, want more")
	}
	// After the agent has caught up, its audio arrives in groups of three frames. No more frames may
	// be trimmed.
	q, _ = newLateQueue(t, 500*time.Millisecond, 20, func(tick int) []byte {
		switch {
		case tick < 500:
			return hush(20 * time.Millisecond)
		case tick%3 == 0:
			return hush(60 * time.Millisecond)
		}
		return nil
	})
	if q.trimmed == 0 {
		t.Error("trimmed frames = 0, want more")
	} else if q.trimmed > 30 {
		t.Errorf("trimmed frames = %v, want at most 30", q.trimmed)
	}
	// An agent that was late now sends faster than real time. Trimming must end within half a second.
	q, _ = newLateQueue(t, time.Second, 10, func(tick int) []byte {
		switch {
		// The first slot contains the initial second of audio. So trimming starts at 2.5 s, after four
		// more slots.
		case tick < 140:
			return hush(20 * time.Millisecond)
		case tick == 140:
			return hush(20 * time.Second)
		}
		return nil
	})
	if q.trimmed == 0 {
		t.Error("trimmed frames = 0, want more")
	} else if q.trimmed > 30 {
		t.Errorf("trimmed frames = %v, want at most 30", q.trimmed)
	}
}

func TestPlayout_TrimsOnlySilence(t *testing.T) {
	t.Parallel()
	if q, depth := newLateQueue(t, 500*time.Millisecond, 1,
		func(int) []byte { return tone(20 * time.Millisecond) }); q.trimmed != 0 {
		t.Errorf("late: trimmed frames = %v, want 0", q.trimmed)
	} else if depth != 500*time.Millisecond {
		t.Errorf("late: depth = %v, want %v", depth, 500*time.Millisecond)
	}
	talking := func(int) []byte { return tone(20 * time.Millisecond) }
	q, depth := newLateQueue(t, 0, 10, func(tick int) []byte {
		if tick == 0 {
			return tone(520 * time.Millisecond)
		}
		return talking(tick)
	})
	if q.trimmed != 0 {
		t.Errorf("speech was trimmed: trimmed frames = %v, want 0", q.trimmed)
	} else if depth < 480*time.Millisecond {
		t.Errorf("speech was trimmed: depth = %v, want at least %v", depth, 480*time.Millisecond)
	}
	// Every fourth frame is loud. Only the silent frames between the loud frames may be trimmed.
	wordAudio := func(tick int) []byte {
		if tick%4 == 0 {
			return tone(20 * time.Millisecond)
		}
		return hush(20 * time.Millisecond)
	}
	if q, depth := newLateQueue(t, 500*time.Millisecond, 10, wordAudio); depth > 100*time.Millisecond {
		t.Errorf("late: depth = %v, want at most %v", depth, 100*time.Millisecond)
	} else if q.trimmed == 0 {
		t.Error("late: trimmed frames = 0, want more")
	}
}

// A model sends a whole sentence at once and then no audio while the sentence is played. The pauses
// within the sentence must not be trimmed.
func TestPlayout_DoesNotTrimAudioOfAnAgentFasterThanRealTime(t *testing.T) {
	t.Parallel()
	order := rand.New(rand.NewPCG(1, 2))
	for name, chunk := range map[string]func(int) []byte{
		"whole sentence at once": func(tick int) []byte {
			if tick == 0 {
				return hush(20 * time.Second)
			}
			return nil
		},
		"half a second of audio every 120 ms": func(tick int) []byte {
			if tick%6 == 0 && tick < 300 {
				return hush(500 * time.Millisecond)
			}
			return nil
		},
		"two seconds of audio every two seconds": func(tick int) []byte {
			if tick%100 == 0 {
				return hush(2 * time.Second)
			}
			return nil
		},
		"random lengths, faster than real time": func(int) []byte {
			return hush(time.Duration(order.IntN(80)) * time.Millisecond)
		},
	} {
		if q, _ := newLateQueue(t, 200*time.Millisecond, 10, chunk); q.trimmed != 0 {
			t.Errorf("%s: trimmed frames = %d, want 0", name, q.trimmed)
		}
	}
}

type recording struct{ person, agent []byte }

func (r *recording) Tick(person, agentAudio []byte) {
	r.person, r.agent = append(r.person, person...), append(r.agent, agentAudio...)
}

func TestRecorder_ReceivesBothSidesSynchronously(t *testing.T) {
	t.Parallel()
	converse(t, agent.Settings{}, func(k *conversationTest) {
		rec := &recording{}
		k.Record(rec)
		k.send(agent.Event{Kind: agent.Audio, Item: "a", Audio: tone(time.Second)})
		k.hear(400 * time.Millisecond)
		k.send(agent.Event{Kind: agent.SpeechStarted, Item: "p"})
		k.pass(600 * time.Millisecond)
		k.Record(nil)
		k.HearFrame(tone(20 * time.Millisecond))
		k.pass(time.Second)
		switch {
		case len(rec.person) != len(rec.agent):
			t.Fatalf("recorded bytes of the person = %v, want %v", len(rec.person), len(rec.agent))
		case agent.Duration(len(rec.agent)) < 980*time.Millisecond:
			t.Fatalf("recorded audio = %v, want at least %v", agent.Duration(len(rec.agent)), 980*time.Millisecond)
		case agent.Duration(len(rec.agent)) > 1020*time.Millisecond:
			t.Fatalf("recorded audio = %v, want at most %v", agent.Duration(len(rec.agent)), 1020*time.Millisecond)
		}
		loudness := func(side []byte) time.Duration { return agent.Duration(len(side) - bytes.Count(side, []byte{silence})) }
		switch p, a := loudness(rec.person), loudness(rec.agent); {
		case p != 400*time.Millisecond:
			t.Errorf("p = %v, want %v", p, 400*time.Millisecond)
		case a < 380*time.Millisecond:
			t.Errorf("a = %v, want at least %v", a, 380*time.Millisecond)
		case a > 420*time.Millisecond:
			t.Errorf("a = %v, want at most %v", a, 420*time.Millisecond)
		}
	})
}

func TestRecorder_LimitsTheSkewBetweenBothSides(t *testing.T) {
	t.Parallel()
	c := New(&fakeSession{events: make(chan agent.Event, 1)}, Settings{}, nil, nil, nil)
	rec := &recording{}
	c.Record(rec)
	for i := range 14 { // many frames arrive from the network together
		c.HearFrame(bytes.Repeat([]byte{byte(i + 1)}, 160))
	}
	frame := make([]byte, 160)
	for range 8 {
		c.NextFrame(frame)
	}
	var order []byte
	for i := 0; i < len(rec.person); i += 160 {
		order = append(order, rec.person[i])
	}
	if want := []byte{8, 9, 10, 11, 12, 13, 14, silence}; !bytes.Equal(order, want) {
		t.Errorf("recorded frames = %v, want the latest %v", order, want)
	}
}

// While earlier audio is played, the leg is not notified of new audio.
func TestConversation_LegIsNotifiedOfNewAudio(t *testing.T) {
	t.Parallel()
	converse(t, agent.Settings{}, func(k *conversationTest) {
		soon := func() int {
			k.phone.mu.Lock()
			defer k.phone.mu.Unlock()
			return k.phone.soon
		}
		for want := 1; want <= 3; want++ {
			k.send(
				agent.Event{Kind: agent.Audio, Item: "a", Audio: tone(100 * time.Millisecond)},
				agent.Event{Kind: agent.Audio, Item: "a", Audio: tone(100 * time.Millisecond)},
			)
			if got := soon(); got != want {
				t.Errorf("notifications = %d, want %d", got, want)
			}
			k.pass(time.Second)
		}
	})
}

// After a single delay, an agent that sends in real time is one frame late. One silent frame must
// be trimmed in the next pause. If delays repeat, no frame may be trimmed, because the queued frame
// compensates for the next delay.
func TestPlayout_TrimsOneFrameAfterASingleDelay(t *testing.T) {
	t.Parallel()
	quiet := func(int) []byte { return hush(20 * time.Millisecond) }
	if q, depth := newLateQueue(t, 20*time.Millisecond, 4, quiet); depth > 0 {
		t.Errorf("late: depth = %v, want 0", depth)
	} else if q.trimmed != 1 {
		t.Errorf("late: trimmed frames = %v, want 1", q.trimmed)
	}
	delayedAudio := func(tick int) []byte { // once per second, a frame arrives 20 ms late
		switch tick % 50 {
		case 20:
			return nil
		case 21:
			return hush(40 * time.Millisecond)
		}
		return hush(20 * time.Millisecond)
	}
	if q, _ := newLateQueue(t, 20*time.Millisecond, 10, delayedAudio); q.trimmed != 0 {
		t.Errorf("trimmed frames = %d, want 0", q.trimmed)
	}
}
