package conversation

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ringfence.dev/services/dialer/internal/agent"
)

// TestPlayout_PiecesOfAnySizeBecomeFrames adds audio of any size. The same bytes must be taken in
// order, with silence only after an item that has ended.
func TestPlayout_PiecesOfAnySizeBecomeFrames(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var q playout
		var want, got []byte
		for i, size := range rapid.SliceOfN(rapid.IntRange(1, 900), 1, 30).Draw(t, "sizes") {
			audio := bytes.Repeat([]byte{byte(i%200 + 1)}, size)
			want = append(want, audio...)
			q.add(string(rune('a'+i/7)), audio, false)
			if i%7 == 6 {
				q.finish(string(rune('a' + i/7)))
			}
			for range rapid.IntRange(0, 3).Draw(t, "ticks") {
				got = appendFrame(&q, got)
			}
		}
		for range 400 {
			got = appendFrame(&q, got)
		}
		if !bytes.Equal(bytes.ReplaceAll(got, []byte{silence}, nil), want) {
			t.Fatalf("%d bytes in, others out", len(want))
		}
		if q.depth != 0 {
			t.Fatalf("%d bytes stay", q.depth)
		}
	})
}

func appendFrame(q *playout, got []byte) []byte {
	frame := make([]byte, 160)
	if spoke, _ := q.next(frame); spoke {
		got = append(got, frame...)
	}
	return got
}

func TestPlayout_APartOfAFrameWaitsForItsRest(t *testing.T) {
	t.Parallel()
	var q playout
	frame := make([]byte, 160)
	q.add("a", tone(10*time.Millisecond), false)
	for tick := range patience {
		if spoke, _ := q.next(frame); spoke {
			t.Fatalf("half a frame went out at tick %d", tick)
		}
	}
	if spoke, _ := q.next(frame); !spoke {
		t.Error("half a frame never went out: spoke = false, want true")
	} else if frame[80] != silence {
		t.Errorf("half a frame never went out: frame[80] = %v, want %v", frame[80], silence)
	}
}

func TestPlayout_IsBounded(t *testing.T) {
	t.Parallel()
	var q playout
	for range 400 {
		q.add("a", make([]byte, agent.BytesPerSecond), false)
	}
	if q.depth != maxQueued {
		t.Errorf("q.depth = %v, want %v", q.depth, maxQueued)
	} else if q.dropped != 100*agent.BytesPerSecond {
		t.Errorf("q.dropped = %v, want %v", q.dropped, 100*agent.BytesPerSecond)
	}
}

func TestNextFrame_AllocatesNothing(t *testing.T) {
	c := New(&fake{events: make(chan agent.Event, 1)}, Settings{}, nil, nil, nil)
	c.Record(discard{})
	for range 100 {
		c.queue.add("a", tone(time.Second), false)
	}
	frame, heard := make([]byte, 160), tone(20*time.Millisecond)
	if n := testing.AllocsPerRun(2000, func() { c.NextFrame(frame); c.HearFrame(heard) }); n != 0 {
		t.Errorf("%v allocations a frame", n)
	}
}

type discard struct{}

func (discard) Tick(_, _ []byte) {}

// late plays a queue that is behind for some seconds, with the audio of chunk, and returns the final depth.
func late(t *testing.T, behind time.Duration, seconds int, chunk func(tick int) []byte) (q playout, depth time.Duration) {
	t.Helper()
	q.add("a", hush(behind), false)
	frame := make([]byte, 160)
	for tick := range seconds * 50 {
		if audio := chunk(tick); audio != nil {
			q.add("a", audio, false)
		}
		q.next(frame)
	}
	return q, agent.Duration(q.depth)
}

func TestRatchet_AnAgentThatIsLateForGoodCatchesUp(t *testing.T) {
	t.Parallel()
	q, depth := late(t, 500*time.Millisecond, 10, func(int) []byte { return hush(20 * time.Millisecond) })
	if depth > 20*time.Millisecond {
		t.Errorf("depth = %v, want at most %v", depth, 20*time.Millisecond)
	} else if q.trimmed == 0 {
		t.Error("q.trimmed = 0, want more")
	}
	// Audio that arrives in pairs of frames is not trimmed after the agent has caught up.
	q, _ = late(t, 500*time.Millisecond, 20, func(tick int) []byte {
		switch {
		case tick < 500:
			return hush(20 * time.Millisecond)
		case tick%3 == 0:
			return hush(60 * time.Millisecond)
		}
		return nil
	})
	if q.trimmed == 0 {
		t.Error("q.trimmed = 0, want more")
	} else if q.trimmed > 30 {
		t.Errorf("q.trimmed = %v, want at most 30", q.trimmed)
	}
	// One that was late and then bursts ahead is left alone within half a second.
	q, _ = late(t, time.Second, 10, func(tick int) []byte {
		switch {
		case tick < 140: // its beginning apart, two seconds are steady after 2.5
			return hush(20 * time.Millisecond)
		case tick == 140:
			return hush(20 * time.Second)
		}
		return nil
	})
	if q.trimmed == 0 {
		t.Error("q.trimmed = 0, want more")
	} else if q.trimmed > 30 {
		t.Errorf("q.trimmed = %v, want at most 30", q.trimmed)
	}
}

func TestRatchet_OnlySilenceIsTrimmed(t *testing.T) {
	t.Parallel()
	if q, depth := late(t, 500*time.Millisecond, 1,
		func(int) []byte { return tone(20 * time.Millisecond) }); q.trimmed != 0 {
		t.Errorf("late: q.trimmed = %v, want 0", q.trimmed)
	} else if depth != 500*time.Millisecond {
		t.Errorf("late: depth = %v, want %v", depth, 500*time.Millisecond)
	}
	talking := func(int) []byte { return tone(20 * time.Millisecond) }
	q, depth := late(t, 0, 10, func(tick int) []byte {
		if tick == 0 {
			return tone(520 * time.Millisecond)
		}
		return talking(tick)
	})
	if q.trimmed != 0 {
		t.Errorf("speech was trimmed: q.trimmed = %v, want 0", q.trimmed)
	} else if depth < 480*time.Millisecond {
		t.Errorf("speech was trimmed: depth = %v, want at least %v", depth, 480*time.Millisecond)
	}
	// One word in four frames: what is trimmed is between the words.
	word := func(tick int) []byte {
		if tick%4 == 0 {
			return tone(20 * time.Millisecond)
		}
		return hush(20 * time.Millisecond)
	}
	if q, depth := late(t, 500*time.Millisecond, 10, word); depth > 100*time.Millisecond {
		t.Errorf("late: depth = %v, want at most %v", depth, 100*time.Millisecond)
	} else if q.trimmed == 0 {
		t.Error("late: q.trimmed = 0, want more")
	}
}

// A model sends a sentence in a moment and then nothing while it is played: its pauses are its own.
func TestRatchet_AnAgentThatBurstsAheadIsLeftAlone(t *testing.T) {
	t.Parallel()
	order := rand.New(rand.NewPCG(1, 2))
	for name, chunk := range map[string]func(int) []byte{
		"all at once": func(tick int) []byte {
			if tick == 0 {
				return hush(20 * time.Second)
			}
			return nil
		},
		"half a second at four times the pace": func(tick int) []byte {
			if tick%6 == 0 && tick < 300 {
				return hush(500 * time.Millisecond)
			}
			return nil
		},
		"in lumps": func(tick int) []byte {
			if tick%100 == 0 {
				return hush(2 * time.Second)
			}
			return nil
		},
		"at random, faster than it is played": func(int) []byte { return hush(time.Duration(order.IntN(80)) * time.Millisecond) },
	} {
		if q, _ := late(t, 200*time.Millisecond, 10, chunk); q.trimmed != 0 {
			t.Errorf("%s: %d frames were trimmed", name, q.trimmed)
		}
	}
}

// recording keeps both sides.
type recording struct{ person, agent []byte }

func (r *recording) Tick(person, said []byte) {
	r.person, r.agent = append(r.person, person...), append(r.agent, said...)
}

func TestRecorder_KeepsBothSidesTogether(t *testing.T) {
	t.Parallel()
	converse(t, agent.Settings{}, func(k *bridgeTalk) {
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
			t.Fatalf("length of rec.person = %v, want %v", len(rec.person), len(rec.agent))
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

func TestRecorder_ItsSkewIsBounded(t *testing.T) {
	t.Parallel()
	c := New(&fake{events: make(chan agent.Event, 1)}, Settings{}, nil, nil, nil)
	rec := &recording{}
	c.Record(rec)
	for i := range 14 { // a burst of the network's
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
		t.Errorf("frames %v, want the latest %v", order, want)
	}
}

// The leg is notified when audio is added to an empty queue, and not while earlier audio is played.
func TestConversation_NotifiesTheLegOfNewAudio(t *testing.T) {
	t.Parallel()
	converse(t, agent.Settings{}, func(k *bridgeTalk) {
		soon := func() int {
			k.phone.mu.Lock()
			defer k.phone.mu.Unlock()
			return k.phone.soon
		}
		for want := 1; want <= 3; want++ {
			k.send(agent.Event{Kind: agent.Audio, Item: "a", Audio: tone(100 * time.Millisecond)}, agent.Event{Kind: agent.Audio, Item: "a", Audio: tone(100 * time.Millisecond)})
			if got := soon(); got != want {
				t.Errorf("told %d times, want %d", got, want)
			}
			k.pass(time.Second)
		}
	})
}

// An agent in real time that is a frame behind, because the line stumbled once, catches up with it in the next pause; what stumbles again and again needs that frame.
func TestRatchet_OneFrameBehindIsCaughtUpWith(t *testing.T) {
	t.Parallel()
	if q, depth := late(t, 20*time.Millisecond, 4, func(int) []byte { return hush(20 * time.Millisecond) }); depth > 0 {
		t.Errorf("late: depth = %v, want 0", depth)
	} else if q.trimmed != 1 {
		t.Errorf("late: q.trimmed = %v, want 1", q.trimmed)
	}
	stumbles := func(tick int) []byte { // each second a frame comes 20 ms late
		switch tick % 50 {
		case 20:
			return nil
		case 21:
			return hush(40 * time.Millisecond)
		}
		return hush(20 * time.Millisecond)
	}
	if q, _ := late(t, 20*time.Millisecond, 10, stumbles); q.trimmed != 0 {
		t.Errorf("%d frames were trimmed that the next stumble needs", q.trimmed)
	}
}
