package media

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ringfence.dev/services/dialer/internal/sdp"
)

func TestPacing_SpreadsStreamsOverTheFrame(t *testing.T) {
	first := newStreamTest(t)
	desks := []*streamTest{first}
	for range 7 {
		d := newStreamTest(t)
		d.streams.remove(d.Stream)
		d.streams = first.streams
		d.Stream.streams = first.streams
		first.streams.add(d.Stream)
		desks = append(desks, d)
	}
	moments := map[time.Duration]int{}
	for _, d := range desks {
		d.connect(t)
	}
	first.run(frameTime)
	for _, d := range desks {
		if len(d.sent) != 1 {
			t.Fatalf("packets of a stream in 20 ms = %d, want 1", len(d.sent))
		}
	}
	for turn := range slots {
		first.time = first.streams.pacer.due()
		before := 0
		for _, d := range desks {
			before -= len(d.sent)
		}
		first.streams.sendDueFrames(first.time)
		for _, d := range desks {
			before += len(d.sent)
		}
		moments[time.Duration(turn)*slotTime] = before
	}
	for at, n := range moments {
		if n != 2 {
			t.Errorf("streams at %[2]v = %[1]d, want 2 of 8", n, at)
		}
	}
}

func TestRun_SleepsWhileThereAreNoStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		streams, err := New(Settings{Bind: netip.MustParseAddr("127.0.0.1")}, nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = streams.Run(t.Context()) }()
		for range 2 {
			time.Sleep(time.Hour)
			synctest.Wait()
			before := streams.pacer.turn.Load()
			time.Sleep(time.Hour)
			synctest.Wait()
			if after := streams.pacer.turn.Load(); after != before {
				t.Errorf("turns in an hour without a stream = %d", after-before)
			}
			sent := 0
			stream := newStream(streams, Leg{})
			stream.send = func([]byte, netip.AddrPort) error { sent++; return nil }
			if err := stream.Connect(agreed()); err != nil {
				t.Fatal(err)
			}
			streams.add(stream)
			time.Sleep(10 * time.Second)
			stream.Close()
			switch {
			case sent < 499:
				t.Errorf("sent = %v, want at least 499", sent)
			case sent > 501:
				t.Errorf("sent = %v, want at most 501", sent)
			case streams.skipped.Load() != 0:
				t.Errorf("streams.skipped.Load() = %v, want 0", streams.skipped.Load())
			}
		}
	})
}

func TestPacing_SkipsFramesAfterALongStall(t *testing.T) {
	for _, row := range []struct {
		name    string
		stall   time.Duration
		most    int // maximum number of packets that are sent at once
		skipped uint64
	}{
		{"stall of 40 ms: no frame is skipped", 40 * time.Millisecond, 3, 0},
		{"stall of 200 ms: 8 frames are skipped", 200 * time.Millisecond, 3, 8},
		{"stall of a minute: no flood of packets", time.Minute, 3, 2998},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := newStreamTest(t)
			d.connect(t)
			d.script = "abcdefghijklmnopqrstuvwxyz"
			d.run(100 * time.Millisecond)
			before := len(d.sent)
			d.time += row.stall
			d.run(frameTime)
			if n := len(d.sent) - before; n > row.most {
				t.Errorf("n = %v, want at most %v", n, row.most)
			} else if n < 1 {
				t.Errorf("n = %v, want at least 1", n)
			}
			if n := d.streams.skipped.Load(); n != row.skipped {
				t.Errorf("skipped frames = %d, want %d", n, row.skipped)
			}
			d.run(100 * time.Millisecond)
			markers := 0
			for i, p := range d.sent[1:] {
				if p.Payload[0] != d.sent[i].Payload[0]+1 {
					t.Errorf("the audio has a gap after %q", d.sent[i].Payload[:1])
				}
				gap := p.Timestamp - d.sent[i].Timestamp
				if p.Marker {
					markers++
				}
				if p.Marker != (gap != Frame) {
					t.Errorf("packet %d: p.Marker = %v, want %v", i+1, p.Marker, gap != Frame)
				} else if gap%Frame != 0 {
					t.Errorf("packet %d: gap%%Frame = %v, want 0", i+1, gap%Frame)
				}
			}
			if (markers > 0) != (row.skipped > 0) {
				t.Errorf("markers = %d", markers)
			}
			// The timestamp of a frame corresponds to the time at which the frame was due, so it must not be
			// ahead of the clock.
			if last := d.sent[len(d.sent)-1]; last.Timestamp-d.out.base > uint32(d.time/frameTime)*Frame {
				t.Errorf("timestamp %d is ahead of the clock", last.Timestamp-d.out.base)
			}
		})
	}
}

func TestStream_ReportsTimeouts(t *testing.T) {
	d := newStreamTest(t)
	reported := func() (n int) {
		t.Helper()
		for want := int(d.Stats().Timeouts); n < want; n++ {
			<-d.timeouts // TimedOut runs in a new goroutine
		}
		return n
	}
	d.run(time.Minute)
	d.connect(t)
	d.run(30*time.Second - frameTime)
	if d.Stats().Timeouts != 0 {
		t.Fatal("timed out before 30 s")
	}
	d.run(time.Minute)
	if reported() != 1 {
		t.Fatalf("%d timeouts before the first packet, want 1", d.Stats().Timeouts)
	}
	d.speak(far, 2)
	d.run(15*time.Second - 2*frameTime)
	if d.Stats().Timeouts != 1 {
		t.Fatal("timed out before 15 s")
	}
	d.connect(t, func(a *sdp.Agreed) { a.Direction = sdp.RecvOnly })
	d.run(time.Minute)
	d.connect(t, func(a *sdp.Agreed) { a.Direction = sdp.SendOnly })
	d.run(time.Minute)
	if d.Stats().Timeouts != 1 {
		t.Fatal("timeout during a hold")
	}
	d.connect(t)
	d.run(15*time.Second - frameTime)
	if d.Stats().Timeouts != 1 {
		t.Fatal("the time of the hold counted for the timeout")
	}
	d.run(2 * frameTime)
	if d.Stats().Timeouts != 2 {
		t.Fatalf("%d timeouts, want 2", d.Stats().Timeouts)
	}
	<-d.timeouts
}

func TestStream_PacketsFromUnknownAddressesDoNotRestartTheTimeout(t *testing.T) {
	d := newStreamTest(t)
	d.connect(t)
	d.speak(far, 1)
	d.speak(unknownSource, 800)
	if d.Stats().Timeouts != 1 {
		t.Errorf("timeouts in 16 s of packets from an unknown source = %d", d.Stats().Timeouts)
	}
	<-d.timeouts
}

// sendInRealTime adds frames one by one, each at the stream's usual turn plus delay. It returns how
// long the last frame waited until it was sent.
func (d *streamTest) sendInRealTime(t *testing.T, frames int, delay time.Duration) (waited time.Duration) {
	t.Helper()
	for range frames {
		usual := time.Duration(d.schedule.usualTurn()) * slotTime
		if usual-d.time >= frameTime { // the previous frame is not sent yet
			usual -= frameTime
		}
		for d.time < usual+delay {
			d.time += time.Millisecond
			d.streams.sendDueFrames(d.time)
		}
		came, before := d.time, len(d.sent)
		d.script += "x"
		d.SpeakSoon()
		for len(d.sent) == before || d.script != "" {
			d.time += time.Millisecond
			d.streams.sendDueFrames(d.time)
		}
		waited = d.time - came
	}
	return waited
}

// In the pause after the first audio, the stream must return to its usual turn (a step of 5 ms of
// the pacing loop).
func TestSpeakSoon_SendsWithin5MillisecondsAfterAPause(t *testing.T) {
	for after := range 20 {
		d := newStreamTest(t)
		d.connect(t)
		d.run(time.Second)
		for range 5 { // the stream must be moved to another turn more than once
			if waited := d.sendInRealTime(t, 1, time.Duration(after)*time.Millisecond); waited > slotTime {
				t.Errorf("audio %d ms after the turn waited %s", after, waited)
			}
			d.run(time.Second)
			if m := &d.schedule; m.dueTurn.Load() != m.usualTurn() {
				t.Errorf("audio %d ms after the turn: turns early after a pause = %d", after, m.usualTurn()-m.dueTurn.Load())
			}
		}
		for i, p := range d.sent[1:] {
			gap := d.at[i+1] - d.at[i]
			switch {
			case p.Timestamp-d.sent[i].Timestamp != Frame:
				t.Fatalf("p.Timestamp - d.sent[i].Timestamp = %v, want %v",
					p.Timestamp-d.sent[i].Timestamp, Frame)
			case p.Marker:
				t.Fatal("p.Marker = true, want false")
			case gap < slotTime:
				t.Fatalf("gap = %v, want at least %v", gap, slotTime)
			case gap > frameTime+slotTime:
				t.Fatalf("gap = %v, want at most %v", gap, frameTime+slotTime)
			}
		}
	}
}

// The stream must adapt to an agent that sends in real time. A frame must then wait at most 10 ms,
// even if it arrives 4 ms later than the frames before.
func TestSpeakSoon_RealTimeAudioWaitsAtMost10Milliseconds(t *testing.T) {
	for after := range 20 {
		d := newStreamTest(t)
		d.connect(t)
		d.script = strings.Repeat("y", 10)
		d.run(200 * time.Millisecond)
		if waited := d.sendInRealTime(t, 2*realTimeFrames, time.Duration(after)*time.Millisecond); waited > 2*slotTime {
			t.Errorf("audio %d ms after the turn: a frame waits %s", after, waited)
		}
		if waited := d.sendInRealTime(t, 10, time.Duration(after+4)*time.Millisecond); waited > 2*slotTime {
			t.Errorf("audio %d ms after the turn, 4 ms later than before: a frame waits %s", after, waited)
		}
	}
}

// The agent sends audio at random times. The stream must still send a packet about every 20 ms.
func TestSpeakSoon_StreamStaysNearItsUsualSendTime(t *testing.T) {
	order := rand.New(rand.NewPCG(1, 2))
	d := newStreamTest(t)
	d.connect(t)
	for range 2000 {
		for range order.IntN(4) * order.IntN(40) { // a pause of 0 to 117 ms, often 0
			d.time += time.Millisecond
			d.streams.sendDueFrames(d.time)
		}
		if d.script == "" {
			d.SpeakSoon()
		}
		d.script += "x"
		if early := d.schedule.usualTurn() - d.schedule.dueTurn.Load(); early > maxEarly {
			t.Fatalf("early = %v, want at most %v", early, maxEarly)
		} else if early < -maxLate {
			t.Fatalf("early = %v, want at least %v", early, -maxLate)
		}
	}
	for i, p := range d.sent[1:] {
		switch gap := d.at[i+1] - d.at[i]; {
		case p.Timestamp-d.sent[i].Timestamp != Frame:
			t.Fatalf("p.Timestamp - d.sent[i].Timestamp = %v, want %v",
				p.Timestamp-d.sent[i].Timestamp, Frame)
		case p.Marker:
			t.Fatal("p.Marker = true, want false")
		case gap < slotTime:
			t.Fatalf("gap = %v, want at least %v", gap, slotTime)
		case gap > 2*frameTime-slotTime:
			t.Fatalf("gap = %v, want at most %v", gap, 2*frameTime-slotTime)
		}
	}
	if n, want := len(d.sent), int(d.time/frameTime); n < want-1 {
		t.Errorf("n = %v, want at least %v; d.time = %s", n, want-1, d.time)
	} else if n > want+1 {
		t.Errorf("n = %v, want at most %v; d.time = %s", n, want+1, d.time)
	}
}
