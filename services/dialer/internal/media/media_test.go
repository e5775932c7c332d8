package media

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/pion/rtp"

	"ringfence.dev/services/dialer/internal/sdp"
)

var (
	far           = netip.MustParseAddrPort("203.0.113.9:40000")
	unknownSource = netip.MustParseAddrPort("192.0.2.66:40000")
)

// voice sends frames that contain consecutive letters, and records the frames that it receives.
type voice struct {
	mu       sync.Mutex
	script   string
	heard    []byte
	digits   string
	timeouts chan struct{}
	unsent   int
}

func (v *voice) FrameUnsent() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.unsent++
}

func (v *voice) NextFrame(dst []byte) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.script == "" {
		return false
	}
	for i := range dst {
		dst[i] = v.script[0]
	}
	v.script = v.script[1:]
	return true
}

func (v *voice) HearFrame(frame []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.heard = append(v.heard, frame[0])
}

func (v *voice) HearDigit(digit byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.digits += string(digit)
}

// streamTest is a stream without a socket. The test controls its clock.
type streamTest struct {
	*Stream
	voice
	streams *Streams
	time    time.Duration
	sent    []rtp.Packet
	to      []netip.AddrPort
	raw     [][]byte
	at      []time.Duration
	number  uint16
}

func newStreamTest(t testing.TB) *streamTest {
	t.Helper()
	d := &streamTest{number: 65530, voice: voice{timeouts: make(chan struct{}, 10)}}
	d.streams = &Streams{
		all:      map[*Stream]bool{},
		settings: Settings{FirstPacket: 30 * time.Second, Silence: 15 * time.Second},
	}
	d.streams.now = func() time.Duration { return d.time }
	d.streams.pacer.turn.Store(1) // then the first 20 ms contain four turns
	d.Stream = newStream(
		d.streams,
		Leg{Source: &d.voice, Sink: &d.voice, TimedOut: func() { d.timeouts <- struct{}{} }},
	)
	d.send = func(packet []byte, to netip.AddrPort) error {
		d.raw, d.to, d.at = append(d.raw, bytes.Clone(packet)), append(d.to, to), append(d.at, d.time)
		var p rtp.Packet
		if err := p.Unmarshal(bytes.Clone(packet)); err != nil {
			t.Error(err)
		}
		d.sent = append(d.sent, p)
		return nil
	}
	d.streams.add(d.Stream)
	return d
}

func agreed(change ...func(*sdp.Agreed)) sdp.Agreed {
	a := sdp.Agreed{Remote: far, Codecs: []sdp.Codec{sdp.PCMU}, EventOut: 96, EventIn: 101, Direction: sdp.Both}
	for _, c := range change {
		c(&a)
	}
	return a
}

func (d *streamTest) connect(t testing.TB, change ...func(*sdp.Agreed)) {
	t.Helper()
	if err := d.Connect(agreed(change...)); err != nil {
		t.Fatal(err)
	}
}

func (d *streamTest) run(forward time.Duration) {
	for end := d.time + forward; d.time < end; {
		d.time += slotTime
		d.streams.sendDueFrames(d.time)
	}
}

func (d *streamTest) packet(number uint16, change ...func(*rtp.Packet)) []byte {
	p := rtp.Packet{
		Header:  rtp.Header{Version: 2, SSRC: 77, SequenceNumber: number, Timestamp: uint32(number-65530) * Frame},
		Payload: bytes.Repeat([]byte{'a' + byte(number-65530)%26}, Frame),
	}
	for _, c := range change {
		c(&p)
	}
	raw, err := p.Marshal()
	if err != nil {
		panic(err)
	}
	return append(make([]byte, 0, 1500), raw...)
}

// speak sends n packets from the far end, one every 20 ms.
func (d *streamTest) speak(from netip.AddrPort, n int, change ...func(*rtp.Packet)) {
	for range n {
		d.receivePacket(d.packet(d.number, change...), from, d.time)
		d.number++
		d.run(frameTime)
	}
}

func TestStream_SendsAFrameEvery20Milliseconds(t *testing.T) {
	d := newStreamTest(t)
	d.run(100 * time.Millisecond)
	if len(d.sent) != 0 {
		t.Fatal("packets were sent before Connect")
	}
	d.connect(t)
	d.script = "abc"
	d.run(time.Second)
	if len(d.sent) != 50 {
		t.Fatalf("packets per second = %d", len(d.sent))
	}
	first := d.sent[0]
	for i, p := range d.sent {
		want := byte(Silence)
		if i < 3 {
			want = "abc"[i]
		}
		switch {
		case p.SSRC != first.SSRC:
			t.Errorf("p.SSRC = %v, want %v", p.SSRC, first.SSRC)
		case p.SequenceNumber != first.SequenceNumber+uint16(i):
			t.Errorf("p.SequenceNumber = %v, want %v", p.SequenceNumber, first.SequenceNumber+uint16(i))
		case p.Timestamp != first.Timestamp+uint32(i)*Frame:
			t.Errorf("p.Timestamp = %v, want %v", p.Timestamp, first.Timestamp+uint32(i)*Frame)
		case p.PayloadType != 0:
			t.Errorf("p.PayloadType = %v, want 0", p.PayloadType)
		case p.Marker != (i == 0):
			t.Errorf("p.Marker = %v, want %v", p.Marker, (i == 0))
		case len(p.Payload) != Frame:
			t.Errorf("length of p.Payload = %v, want %v", len(p.Payload), Frame)
		case p.Payload[0] != want:
			t.Errorf("p.Payload[0] = %v, want %v", p.Payload[0], want)
		case d.to[i] != far:
			t.Errorf("d.to[i] = %v, want %v", d.to[i], far)
		}
		if i > 0 && d.at[i]-d.at[i-1] != frameTime {
			t.Errorf("packet %d is %v after the previous one", i, d.at[i]-d.at[i-1])
		}
	}
	other := newStreamTest(t)
	if other.out.header.SSRC == first.SSRC {
		t.Errorf("two streams have the same random numbers: other.out.header.SSRC = %v, want another value",
			other.out.header.SSRC)
	} else if other.out.base == d.out.base {
		t.Errorf("two streams have the same random numbers: other.out.base = %v, want another value", other.out.base)
	}
}

// The operating system refuses all packets. FrameUnsent must not be called for the silence after
// the three frames, because the source did not provide that silence.
func TestStream_ReportsFramesThatWereNotSent(t *testing.T) {
	t.Parallel()
	d := newStreamTest(t)
	d.send = func([]byte, netip.AddrPort) error { return errors.New("network is unreachable") }
	d.connect(t)
	d.script = "abc"
	d.run(time.Second)
	if got, want := d.unsent, 3; got != want {
		t.Errorf("frames that were reported = %d, want %d", got, want)
	}
	if got, want := d.Close().Unsent, uint64(50); got != want {
		t.Errorf("unsent packets = %d, want %d", got, want)
	}
}

func TestStream_ConvertsBetweenPCMAAndPCMU(t *testing.T) {
	d := newStreamTest(t)
	d.connect(t, func(a *sdp.Agreed) { a.Codecs = []sdp.Codec{sdp.PCMA, sdp.PCMU} })
	d.script = "a"
	d.run(2 * frameTime)
	want := []byte{'a', Silence}
	ToALaw(want)
	switch {
	case len(d.sent) != 2:
		t.Errorf("length of d.sent = %v, want 2", len(d.sent))
	case d.sent[0].PayloadType != 8:
		t.Errorf("d.sent[0].PayloadType = %v, want 8", d.sent[0].PayloadType)
	case d.sent[0].Payload[7] != want[0]:
		t.Errorf("d.sent[0].Payload[7] = %v, want %v", d.sent[0].Payload[7], want[0])
	case d.sent[1].Payload[7] != want[1]:
		t.Errorf("d.sent[1].Payload[7] = %v, want %v", d.sent[1].Payload[7], want[1])
	}
	alaw := []byte{'a'}
	ToALaw(alaw)
	d.speak(far, 1, func(p *rtp.Packet) { p.PayloadType = 8; p.Payload = bytes.Repeat(alaw, Frame) })
	d.speak(far, 1)
	heard := []byte{alaw[0]}
	FromALaw(heard)
	if want := string(heard) + "b"; string(d.heard) != want {
		t.Errorf("received frames = %q, want %q: both laws are accepted", d.heard, want)
	}
}

func TestStream_IgnoresInvalidPackets(t *testing.T) {
	d := newStreamTest(t)
	d.receivePacket(d.packet(d.number), far, 0)
	d.connect(t)
	d.speak(far, 3)
	d.speak(far, 1, func(p *rtp.Packet) { p.PayloadType = 13 }) // payload type 13 is comfort noise
	d.speak(far, 2)
	d.receivePacket([]byte{0x80, 0}, far, d.time)
	extended := append(
		[]byte{0x90, 0, 0xFF, 0xFA, 0, 0, 0, 0, 0, 0, 0, 77, 0xBE, 0xDE, 0, 50},
		bytes.Repeat([]byte{0x10, 0}, 100)...)
	if d.receivePacket(extended, far, d.time); cap(d.in.header.Extensions) > 16 {
		t.Errorf("capacity for extensions = %d, want less", cap(d.in.header.Extensions))
	}
	d.receivePacket(d.packet(9, func(p *rtp.Packet) { p.Version = 1 }), far, d.time)
	// This packet claims more padding than it has bytes.
	d.receivePacket([]byte("\xa0\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\x4d\xff"), far, d.time)
	if want := "abc\xffef"; string(d.heard) != want {
		t.Errorf("received frames = %q, want %q", d.heard, want)
	}
	switch s := d.Stats(); {
	case s.Foreign != 1:
		t.Errorf("Foreign = %v, want 1", s.Foreign)
	case s.Malformed != 3:
		t.Errorf("Malformed = %v, want 3", s.Malformed)
	case s.Lost != 0:
		t.Errorf("Lost = %v, want 0", s.Lost)
	}
}

func TestStream_IgnoresPacketsFromUnknownAddresses(t *testing.T) {
	d := newStreamTest(t)
	d.connect(t)
	d.speak(unknownSource, 100)
	d.number = 65530
	d.speak(far, 3)
	for n := range uint16(100) {
		d.receivePacket(d.packet(d.number+n, func(p *rtp.Packet) { p.Payload[0] = 'X' }), unknownSource, d.time)
		d.receivePacket(
			d.packet(d.number+n, func(p *rtp.Packet) { p.PayloadType = 101; p.Payload = []byte{5, 0x8A, 1, 64} }),
			unknownSource,
			d.time,
		)
	}
	d.speak(far, 3)
	if string(d.heard) != "abcdef" {
		t.Errorf(`received frames = %q, want "abcdef"`, string(d.heard))
	} else if d.digits != "" {
		t.Errorf("received digits = %q, want it empty", d.digits)
	}
	for i, to := range d.to {
		if to != far {
			t.Fatalf("packet %d goes to %v", i, to)
		}
	}
	if s := d.Stats(); s.UnknownSources != 300 {
		t.Errorf("%+v", s)
	}
}

func TestStream_FollowsThePeerToADifferentPort(t *testing.T) {
	d := newStreamTest(t)
	d.connect(t)
	nearby := netip.AddrPortFrom(far.Addr(), 1024)
	d.speak(nearby, 10)
	if string(d.heard) != "efghij" {
		t.Errorf(`received frames = %q, want "efghij"`, string(d.heard))
	} else if d.to[len(d.to)-1] != nearby {
		t.Errorf("destination of the last packet = %v, want %v", d.to[len(d.to)-1], nearby)
	}
	moved := netip.MustParseAddrPort("203.0.113.10:5000")
	d.connect(t, func(a *sdp.Agreed) { a.Remote = moved })
	d.run(frameTime)
	if d.to[len(d.to)-1] != moved {
		t.Error("the address of a re-INVITE was ignored")
	}
}

func TestStream_AcceptsANewSSRC(t *testing.T) {
	d := newStreamTest(t)
	d.connect(t)
	d.speak(far, 3)
	d.number = 20
	d.speak(far, 3, func(p *rtp.Packet) { p.SSRC = 78; p.Timestamp += 12345; p.Payload[0] = 'z' })
	if string(d.heard) != "abczzz" {
		t.Errorf("heard %q", d.heard)
	}
	switch s := d.Stats(); {
	case s.Sources != 1:
		t.Errorf("Sources = %v, want 1", s.Sources)
	case s.Lost != 0:
		t.Errorf("Lost = %v, want 0", s.Lost)
	case s.Received != 6:
		t.Errorf("Received = %v, want 6", s.Received)
	}
}

func TestStream_SendsNothingWhileTheCallIsOnHold(t *testing.T) {
	d := newStreamTest(t)
	d.connect(t)
	d.script = "ab"
	d.run(frameTime)
	d.connect(t, func(a *sdp.Agreed) { a.Direction = sdp.RecvOnly })
	d.run(time.Second / 2)
	d.connect(t, func(a *sdp.Agreed) { a.Remote, a.Direction = netip.AddrPort{}, sdp.RecvOnly })
	d.run(time.Second / 2)
	if len(d.sent) != 1 {
		t.Fatalf("packets during the hold = %d", len(d.sent)-1)
	}
	d.connect(t)
	d.run(frameTime)
	switch p := d.sent[1]; {
	case len(d.sent) != 2:
		t.Errorf("length of d.sent = %v, want 2", len(d.sent))
	case !p.Marker:
		t.Error("p.Marker = false, want true")
	case p.SequenceNumber != d.sent[0].SequenceNumber+1:
		t.Errorf("p.SequenceNumber = %v, want %v", p.SequenceNumber, d.sent[0].SequenceNumber+1)
	case p.Timestamp-d.sent[0].Timestamp != 51*Frame:
		t.Errorf("p.Timestamp - d.sent[0].Timestamp = %v, want %v",
			p.Timestamp-d.sent[0].Timestamp, 51*Frame)
	case p.Payload[0] != 'b':
		t.Errorf("p.Payload[0] = %v, want 'b'", p.Payload[0])
	}
	d.connect(t, func(a *sdp.Agreed) { a.Direction = sdp.SendOnly })
	d.speak(far, 3)
	if n := len(d.heard); n != 0 {
		t.Errorf("frames received during the hold = %d", n)
	}
	d.connect(t)
	d.speak(far, 2)
	if s := d.Stats(); s.Lost != 0 {
		t.Errorf("Stats: Lost = %v, want 0", s.Lost)
	} else if string(d.heard) != "de" {
		t.Errorf(`Stats: received frames = %q, want "de"`, string(d.heard))
	}
}

func TestStream_SendsDigits(t *testing.T) {
	d := newStreamTest(t)
	d.connect(t, func(a *sdp.Agreed) { a.EventOut = 0 })
	if d.SendDigits("1") == nil {
		t.Error("SendDigits succeeded without telephone-events")
	}
	d.connect(t)
	if d.SendDigits("1x") == nil {
		t.Error(`validation: d.SendDigits("1x") = nil, want a value`)
	} else if got := d.SendDigits("#"); got != nil {
		t.Errorf(`validation: d.SendDigits("#") = %v, want nil`, got)
	}
	d.script = "abcdefgh"
	d.run(20 * frameTime)
	var ends int
	for i, p := range d.sent {
		event := i < 7
		switch {
		case event != (p.PayloadType == 96):
			t.Errorf("event = %v, want %v", event, (p.PayloadType == 96))
		case p.SequenceNumber != d.sent[0].SequenceNumber+uint16(i):
			t.Errorf("p.SequenceNumber = %v, want %v", p.SequenceNumber, d.sent[0].SequenceNumber+uint16(i))
		case event && p.Timestamp != d.sent[0].Timestamp:
			t.Errorf("timestamp of an event packet = %v, want %v", p.Timestamp, d.sent[0].Timestamp)
		}
		if event && p.Payload[1]&0x80 != 0 {
			ends++
			if duration := binary.BigEndian.Uint16(p.Payload[2:]); duration != 800 {
				t.Errorf("Uint16: duration = %v, want 800", duration)
			} else if p.Payload[0] != 11 {
				t.Errorf("Uint16: p.Payload[0] = %v, want 11", p.Payload[0])
			}
		}
		if !event && p.Timestamp != d.sent[0].Timestamp+uint32(i)*Frame {
			t.Errorf("timestamp after the digit = %d", p.Timestamp-d.sent[0].Timestamp)
		}
	}
	if ends != 3 {
		t.Errorf("ends = %v, want 3; d.sent[12].Payload[:1] = %q", ends, d.sent[12].Payload[:1])
	} else if d.sent[12].Payload[0] != 'a' {
		t.Errorf("d.sent[12].Payload[0] = %v, want 'a'; d.sent[12].Payload[:1] = %q",
			d.sent[12].Payload[0], d.sent[12].Payload[:1])
	}
	if d.Stats().Events != 7 {
		t.Errorf("%+v", d.Stats())
	}
}

func TestStream_DropsAFloodOfDigits(t *testing.T) {
	d := newStreamTest(t)
	d.connect(t)
	for n := range uint16(1000) {
		d.receivePacket(
			d.packet(
				n,
				func(p *rtp.Packet) { p.PayloadType, p.Marker, p.Payload = 101, true, []byte{byte(n % 10), 0x8A, 1, 64} },
			),
			far,
			d.time,
		)
	}
	if s := d.Stats(); len(d.digits) != maxKeys {
		t.Errorf("Stats: length of received digits = %d, want %d", len(d.digits), maxKeys)
	} else if s.Excess != 1000-maxKeys {
		t.Errorf("Stats: Excess = %v, want %v", s.Excess, 1000-maxKeys)
	}
}

func TestStream_ReceivesDigitsWithASeparateSSRC(t *testing.T) {
	d := newStreamTest(t)
	d.connect(t)
	for i := range uint16(20) {
		d.speak(far, 1)
		if i >= 5 && i < 12 {
			d.receivePacket(d.packet(3*i, func(p *rtp.Packet) {
				p.SSRC, p.PayloadType, p.Timestamp, p.Marker = 99, 101, 4000, i == 5
				p.Payload = []byte{3, 10, 0, byte(i)}
				if i >= 9 {
					p.Payload[1] |= 0x80
				}
			}), far, d.time)
		}
	}
	if string(d.heard) != "abcdefghijklmnopqrst" {
		t.Errorf(`received frames = %q, want "abcdefghijklmnopqrst"`, string(d.heard))
	} else if d.digits != "3" {
		t.Errorf(`received digits = %q, want "3"`, d.digits)
	}
	if s := d.Stats(); s.Sources != 0 {
		t.Errorf("Stats: Sources = %v, want 0", s.Sources)
	} else if s.Lost != 0 {
		t.Errorf("Stats: Lost = %v, want 0", s.Lost)
	}
}

func TestStream_ReceivesDigits(t *testing.T) {
	// A far end must send digits with 101, the payload type in the SDP of this side. Some far ends
	// wrongly send 96, the payload type in their own SDP.
	for _, payloadType := range []uint8{101, 96} {
		d := newStreamTest(t)
		d.connect(t)
		d.speak(far, 2)
		began := uint32(d.number-65530) * Frame
		for i := range 7 {
			d.speak(far, 1, func(p *rtp.Packet) {
				p.PayloadType, p.Timestamp, p.Marker = payloadType, began, i == 0
				p.Payload = []byte{7, 10, 0, byte(i + 1)}
				if i > 3 {
					p.Payload[1] |= 0x80
				}
			})
		}
		d.speak(far, 2)
		if d.digits != "7" {
			t.Errorf("digits = %q", d.digits)
		}
		if want := "ab\xff\xff\xff\xff\xff\xff\xffjk"; string(d.heard) != want {
			t.Errorf("received frames = %q, want %q: silence during the digit", d.heard, want)
		}
	}
}
