package media

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// line is a buffer that receives frames of letters. All samples of a frame are the same letter.
// Consecutive frames have different letters.
type line struct {
	*JitterBuffer
	heard string // letter of each passed frame; "_": silence, "?": a mixed frame
	now   time.Duration
	base  uint32
	first uint16
}

func newLine() *line {
	l := &line{base: 5000, first: 100}
	l.JitterBuffer = NewJitterBuffer(func(frame []byte) {
		switch {
		case len(frame) != BufferedFrame:
			l.heard += "!"
		case bytes.Count(frame, frame[:1]) != BufferedFrame:
			l.heard += "?"
		case frame[0] == silence:
			l.heard += "_"
		default:
			l.heard += string(frame[0])
		}
	})
	return l
}

// advanceTo advances the time in steps of 20 ms, like the pacing loop.
func (l *line) advanceTo(ms int) {
	for to := time.Duration(ms) * time.Millisecond; l.now < to; {
		l.now = min(l.now-l.now%bufferFrameTime+bufferFrameTime, to)
		l.Elapse(l.now)
	}
}

// addPacket passes the samples [from, from+length) of a stream to the buffer. The frames of the
// stream are the letters of the alphabet.
func (l *line) addPacket(number, from, length int) {
	audio := make([]byte, length)
	for i := range audio {
		audio[i] = 'a' + byte((from+i)/BufferedFrame%26)
	}
	if a, ok := l.Count(l.first + uint16(number)); ok {
		l.Audio(a, l.base+uint32(from), audio, l.now)
	}
}

func (l *line) frame(n int) { l.addPacket(n, n*BufferedFrame, BufferedFrame) }

func (l *line) want(t *testing.T, heard string) {
	t.Helper()
	if l.heard != heard {
		t.Errorf("frames = %q, want %q; %+v", l.heard, heard, l.Stats())
	}
}

func TestJitterBuffer_DoesNotDelayOrderedPackets(t *testing.T) {
	l := newLine()
	for n := range 10 {
		l.advanceTo(n * 20)
		l.frame(n)
		l.want(t, "abcdefghij"[:n+1])
	}
	switch s := l.Stats(); {
	case s.Received != 10:
		t.Errorf("Received = %v, want 10", s.Received)
	case s.Lost+s.Late+s.Duplicates+s.Filled+s.Restarts != 0:
		t.Errorf("Lost + Late + Duplicates + Filled + Restarts = %v, want 0",
			s.Lost+s.Late+s.Duplicates+s.Filled+s.Restarts)
	case s.Jitter != 0:
		t.Errorf("Jitter = %v, want 0", s.Jitter)
	}
}

func TestJitterBuffer_ReordersPackets(t *testing.T) {
	l := newLine()
	for i, n := range []int{0, 2, 1, 3, 5, 6, 4, 7} {
		l.advanceTo(i * 20)
		l.frame(n)
	}
	l.want(t, "abcdefgh")
	if s := l.Stats(); s.Lost+s.Late+s.Filled != 0 {
		t.Errorf("%+v", s)
	}
}

func TestJitterBuffer_ReplacesALostPacketAfterTheWait(t *testing.T) {
	l := newLine()
	l.frame(0)
	l.advanceTo(40)
	l.frame(2)
	l.advanceTo(70)
	// Frame 1 is lost. Silence replaces it after its length (20 ms) and the wait (60 ms).
	l.want(t, "a")
	l.advanceTo(80)
	l.want(t, "a_c")
	l.frame(3)
	l.want(t, "a_cd")
	l.frame(1)
	l.want(t, "a_cd")
	switch s := l.Stats(); {
	case s.Lost != 0:
		t.Errorf("Lost = %v, want 0", s.Lost)
	case s.Late != 1:
		t.Errorf("Late = %v, want 1", s.Late)
	case s.Filled != 1:
		t.Errorf("Filled = %v, want 1", s.Filled)
	}
}

func TestJitterBuffer_WaitsForAMissingPacketBeforeAPause(t *testing.T) {
	l := newLine()
	l.frame(0)
	l.advanceTo(40)
	l.frame(2)
	l.advanceTo(60)
	l.addPacket(3, 4*BufferedFrame, BufferedFrame) // the sender skipped one frame
	l.want(t, "a")
	l.frame(1)
	l.want(t, "abc_e")
}

func TestJitterBuffer_DropsDuplicates(t *testing.T) {
	l := newLine()
	for n := range 5 {
		l.advanceTo(n * 20)
		l.frame(n)
		l.frame(n)
		l.frame(max(n-1, 0))
	}
	l.want(t, "abcde")
	switch s := l.Stats(); {
	case s.Received != 5:
		t.Errorf("Received = %v, want 5", s.Received)
	case s.Duplicates != 10:
		t.Errorf("Duplicates = %v, want 10", s.Duplicates)
	case s.Lost+s.Late != 0:
		t.Errorf("Lost + Late = %v, want 0", s.Lost+s.Late)
	}
}

func TestJitterBuffer_AcceptsWrappedSequenceNumbers(t *testing.T) {
	l := newLine()
	l.first, l.base = 65533, ^uint32(0)-399
	for i, n := range []int{0, 1, 3, 2, 4, 5, 7, 8} {
		l.advanceTo(i * 20)
		l.frame(n)
	}
	l.advanceTo(180)
	l.want(t, "abcdef_hi")
	if s := l.Stats(); s.Lost != 1 {
		t.Errorf("Stats: Lost = %v, want 1", s.Lost)
	} else if s.Received != 8 {
		t.Errorf("Stats: Received = %v, want 8", s.Received)
	}
}

func TestJitterBuffer_AcceptsPacketsOfAnyLength(t *testing.T) {
	for _, length := range []int{80, 160, 240, 320, 480, 800} {
		l := newLine()
		for n := 0; n*length < 24*BufferedFrame; n++ {
			l.advanceTo(n * length / 8)
			l.addPacket(n, n*length, length)
		}
		if !strings.HasPrefix(l.heard, "abcdefghijklmnopqrstuvwx") {
			t.Errorf("%d ms: heard %q", length/8, l.heard)
		}
		if s := l.Stats(); length <= 480 && s.Filled != 0 {
			t.Errorf("%d ms: %+v", length/8, s)
		}
	}
}

func TestJitterBuffer_ReturnsSilenceWhileTheSenderPauses(t *testing.T) {
	l := newLine()
	l.frame(0)
	l.advanceTo(500) // the sender skipped the frames 1 to 24
	if n := strings.Count(l.heard, "_"); n < 22 {
		t.Errorf("Count: n = %v, want at least 22", n)
	} else if n > 24 {
		t.Errorf("Count: n = %v, want at most 24", n)
	}
	l.addPacket(1, 25*BufferedFrame, BufferedFrame)
	// The buffer has already returned silence for the 24 skipped frames, so this frame is not
	// delayed.
	l.want(t, "a"+strings.Repeat("_", 24)+"z")
	l.advanceTo(520)
	l.addPacket(2, 26*BufferedFrame, BufferedFrame)
	l.want(t, "a"+strings.Repeat("_", 24)+"za")
	if s := l.Stats(); s.Late+s.Lost != 0 {
		t.Errorf("%+v", s)
	}
}

func TestJitterBuffer_ReturnsFramesWhileNoPacketsArrive(t *testing.T) {
	l := newLine()
	l.frame(0)
	l.advanceTo(10_000)
	if n := len(l.heard); n < 495 {
		t.Errorf("n = %v, want at least 495", n)
	} else if n > 500 {
		t.Errorf("n = %v, want at most 500", n)
	}
	if l.Elapse(time.Hour); len(l.heard) > 500+maxFill {
		t.Errorf("frames of one Elapse after an hour = %d", len(l.heard)-500)
	}
	before := len(l.heard)
	if l.Elapse(time.Hour); len(l.heard) > before+1 {
		t.Errorf("frames of a second Elapse at the same time = %d", len(l.heard)-before)
	}
}

func TestJitterBuffer_WaitGrowsWithLatenessAndShrinksLater(t *testing.T) {
	l := newLine()
	n := 0
	for ; n < 5; n++ {
		l.advanceTo(n * 20)
		l.frame(n)
	}
	l.advanceTo(80 + 140) // after a stall of the network, the packets of 140 ms arrive together
	for ; n < 12; n++ {
		l.frame(n)
	}
	switch s := l.Stats(); {
	case s.Late == 0:
		t.Fatal("Late = 0, want another value")
	case l.wait <= minWait:
		t.Fatalf("l.wait = %v, want more than %v", l.wait, minWait)
	case l.wait > maxWait:
		t.Fatalf("l.wait = %v, want at most %v", l.wait, maxWait)
	}
	before := l.Stats()
	l.advanceTo(220 + 120)
	for ; n < 18; n++ {
		l.frame(n)
	}
	if s := l.Stats(); s.Late != before.Late {
		t.Errorf("a second stall, of 120 ms: Late = %v, want %v", s.Late, before.Late)
	} else if s.Filled != before.Filled {
		t.Errorf("a second stall, of 120 ms: Filled = %v, want %v", s.Filled, before.Filled)
	}
	for ; n < 1800; n++ {
		l.advanceTo(n * 20)
		l.frame(n)
	}
	if l.wait != minWait {
		t.Errorf("wait = %v after 30 s without late packets", l.wait)
	}
}

func TestJitterBuffer_AdaptsIfTheNetworkDelayGrows(t *testing.T) {
	l := newLine()
	for n := range 200 {
		l.advanceTo(n*20 + n/100*400)
		l.frame(n)
	}
	if !strings.HasSuffix(l.heard, "abcdefghijklmnopqr") {
		t.Errorf(`l.heard = %q, want it to end with "abcdefghijklmnopqr"; the end of l.heard = %q`,
			l.heard, l.heard[len(l.heard)-20:])
	} else if got := l.Stats().Late; got > 6 {
		t.Errorf("Late = %v, want at most 6; the end of l.heard = %q", got, l.heard[len(l.heard)-20:])
	}
}

func TestJitterBuffer_AcceptsJumpsOfTimestampsAndSequenceNumbers(t *testing.T) {
	l := newLine()
	l.frame(0)
	l.advanceTo(20)
	l.base += 1_000_000 // the timestamp jumps without a marker, but the sequence numbers continue
	l.frame(1)
	l.want(t, "ab")
	l.advanceTo(40)
	l.first += 20_000
	l.frame(2) // one packet does not prove a new sequence
	l.want(t, "ab")
	l.advanceTo(60)
	l.frame(3)
	l.want(t, "abd")
	l.NewSource()
	l.first, l.base = 7, 9
	l.frame(0)
	l.want(t, "abda")
	if s := l.Stats(); s.Restarts != 3 {
		t.Errorf("Stats: Restarts = %v, want 3", s.Restarts)
	} else if s.Lost != 0 {
		t.Errorf("Stats: Lost = %v, want 0", s.Lost)
	}
}

func TestJitterBuffer_DropsAFloodOfPackets(t *testing.T) {
	l := newLine()
	for n := range 5000 {
		l.frame(n)
	}
	if n := len(l.heard); n != 50 {
		t.Errorf("n = %v, want 50", n)
	} else if got := l.Stats().Excess; got != 4950 {
		t.Errorf("Excess = %v, want 4950", got)
	}
	l.heard = ""
	for n := range 100 {
		l.now += bufferFrameTime
		l.frame(5000 + n)
	}
	if len(l.heard) != 100 {
		t.Errorf("frames after the flood = %d, want 100", len(l.heard))
	}
}

func TestJitterBuffer_MeasuresJitter(t *testing.T) {
	l := newLine()
	for n := range 500 {
		l.now = time.Duration(n*20+n%2*10) * time.Millisecond
		l.frame(n)
	}
	if j := l.Stats().Jitter; j < 9*time.Millisecond {
		t.Errorf("j = %v, want at least %v", j, 9*time.Millisecond)
	} else if j > 10*time.Millisecond {
		t.Errorf("j = %v, want at most %v", j, 10*time.Millisecond)
	}
}

func TestJitterBuffer_AllocatesNothing(t *testing.T) {
	var frames int
	b := NewJitterBuffer(func([]byte) { frames++ })
	audio, n := make([]byte, BufferedFrame), 0
	allocated := testing.AllocsPerRun(1000, func() {
		now := time.Duration(n) * bufferFrameTime
		if a, ok := b.Count(uint16(n)); ok && n%7 != 3 {
			b.Audio(a, uint32(n*BufferedFrame), audio, now)
		}
		b.Elapse(now)
		n++
	})
	if allocated != 0 {
		t.Errorf("allocated = %v, want 0", allocated)
	} else if frames < 900 {
		t.Errorf("frames = %v, want at least 900", frames)
	}
}

// FuzzJitterBuffer sends packets with arbitrary sequence numbers, timestamps, lengths and arrival
// times. Eight bytes of the input describe one packet.
func FuzzJitterBuffer(f *testing.F) {
	seed := rand.New(rand.NewPCG(1, 2))
	orderly, disorderly := []byte{}, []byte{}
	for n := range 40 {
		orderly = append(orderly, 0, byte(n), 0, 0, byte(n), 160, 20, 0)
		disorderly = append(
			disorderly,
			byte(seed.Uint32()),
			byte(seed.Uint32()),
			byte(seed.Uint32()),
			byte(seed.Uint32()),
			byte(seed.Uint32()),
			160,
			20,
			0,
		)
	}
	f.Add(orderly)
	f.Add(disorderly)
	f.Fuzz(func(t *testing.T, script []byte) {
		heard, packets := 0, 0
		b := NewJitterBuffer(func(frame []byte) {
			if heard++; len(frame) != BufferedFrame {
				t.Fatalf("length of a frame = %d", len(frame))
			}
		})
		audio := make([]byte, 2040)
		var now time.Duration
		for ; len(script) >= 8; script = script[8:] {
			now += time.Duration(script[6]) * time.Millisecond
			if script[7]&1 != 0 {
				b.Elapse(now)
			}
			if a, ok := b.Count(binary.BigEndian.Uint16(script)); ok {
				stamp := binary.BigEndian.Uint16(script[2:])
				b.Audio(
					a,
					uint32(stamp)<<(script[7]>>4)+uint32(script[4])*BufferedFrame,
					audio[:int(script[5])<<(script[7]>>1&3)],
					now,
				)
				packets++
			}
			switch {
			case b.topPos < b.headPos:
				t.Fatalf("b.top = %v, want at least %v", b.topPos, b.headPos)
			case b.topPos-b.headPos > ringFrames*BufferedFrame:
				t.Fatalf("b.top - b.head = %v, want at most %v", b.topPos-b.headPos, ringFrames*BufferedFrame)
			case b.wait > maxWait:
				t.Fatalf("b.wait = %v, want at most %v", b.wait, maxWait)
			}
		}
		if most := int(now/bufferFrameTime) + 51; heard > most {
			t.Errorf("%d frames of %d packets in %v", heard, packets, now)
		}
		if s := b.Stats(); s.Lost > uint64(packets+1)*maxSequenceJump {
			t.Errorf("%+v of %d packets", s, packets)
		}
	})
}
