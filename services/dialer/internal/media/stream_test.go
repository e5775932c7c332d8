package media

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pion/rtp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/dialer/internal/sdp"
)

func keyed(out, in byte) func(*sdp.Agreed) {
	return func(a *sdp.Agreed) { a.Out, a.In = &sdp.Key{out}, &sdp.Key{in} }
}

func TestStream_EncryptsWithSRTP(t *testing.T) {
	d := newStreamTest(t)
	d.connect(t, keyed(1, 2))
	theirs, err := NewEncrypter(sdp.Key{2})
	if err != nil {
		t.Fatal(err)
	}
	ours, err := NewDecrypter(sdp.Key{1})
	if err != nil {
		t.Fatal(err)
	}
	sealed := func(number uint16) []byte {
		packet, err := theirs.Seal(d.packet(number))
		if err != nil {
			t.Fatal(err)
		}
		return packet
	}
	for n := range uint16(10) { // the sequence numbers wrap
		packet := sealed(65530 + n)
		again, forged := bytes.Clone(packet), bytes.Clone(packet)
		forged[50] ^= 1
		d.receivePacket(forged, far, d.time)
		d.receivePacket(packet, far, d.time)
		d.receivePacket(again, far, d.time)
		d.receivePacket(d.packet(900+n), far, d.time)
		d.run(frameTime)
	}
	if string(d.heard) != "abcdefghij" {
		t.Errorf("heard %q", d.heard)
	}
	switch s := d.Stats(); {
	case s.Forged != 20:
		t.Errorf("Forged = %v, want 20", s.Forged)
	case s.Replayed != 10:
		t.Errorf("Replayed = %v, want 10", s.Replayed)
	case s.Duplicates != 0:
		t.Errorf("Duplicates = %v, want 0", s.Duplicates)
	}
	d.script = "k"
	d.run(frameTime)
	seal := d.out.seal
	// A session refresh must not restart the encryption. Otherwise the packet counter would restart
	// too.
	if d.connect(t, keyed(1, 2)); d.out.seal != seal {
		t.Error("a refresh reset the key")
	}
	d.script = "l"
	d.run(frameTime)
	heard := ""
	for _, raw := range d.raw {
		packet, err := ours.Open(raw, d.out.header.SSRC)
		if err != nil {
			t.Fatalf("decrypt at the far end: %v", err)
		}
		if packet[12] != Silence {
			heard += string(rune(packet[12]))
		}
	}
	if heard != "kl" {
		t.Errorf("frames at the far end = %q", heard)
	}
	d.receivePacket(sealed(4), far, d.time)
	d.connect(t, keyed(3, 4))
	d.receivePacket(sealed(5), far, d.time)
	if string(d.heard) != "abcdefghij\xffk" && string(d.heard) != "abcdefghijk" || d.Stats().Forged != 21 {
		t.Errorf("frames after another key = %q, %+v", d.heard, d.Stats())
	}
}

func TestStream_IgnoresPacketsWithoutTheSRTPKey(t *testing.T) {
	d := newStreamTest(t)
	d.connect(t, keyed(1, 2))
	d.speak(netip.AddrPortFrom(far.Addr(), 1024), 50)
	switch s := d.Stats(); {
	case len(d.heard) != 0:
		t.Errorf("length of received frames = %v, want 0", len(d.heard))
	case s.Forged != 50:
		t.Errorf("Forged = %v, want 50", s.Forged)
	case d.to[len(d.to)-1] != far:
		t.Errorf("destination of the last packet = %v, want %v", d.to[len(d.to)-1], far)
	}
}

func TestStream_AllocatesNothing(t *testing.T) {
	for name, change := range map[string]func(*sdp.Agreed){
		"µ-law": func(*sdp.Agreed) {},
		"A-law": func(a *sdp.Agreed) { a.Codecs = []sdp.Codec{sdp.PCMA} },
	} {
		d := newStreamTest(t)
		d.connect(t, change)
		sent, heard := 0, 0
		d.send = func([]byte, netip.AddrPort) error { sent++; return nil }
		d.Stream.leg.Source, d.Stream.leg.Sink = constant{}, counting{&heard}
		packet := d.packet(0, func(p *rtp.Packet) { p.PayloadType = uint8(d.out.codec) })
		number := uint16(0)
		allocated := testing.AllocsPerRun(1000, func() {
			number++
			packet[2], packet[3], packet[5], packet[6], packet[7] = byte(
				number>>8,
			), byte(
				number,
			), byte(
				int(number)*Frame>>16,
			), byte(
				int(number)*Frame>>8,
			), byte(
				int(number)*Frame,
			)
			d.receivePacket(packet, far, d.time)
			d.run(frameTime)
		})
		switch {
		case allocated != 0:
			t.Errorf("%s: allocated = %v, want 0", name, allocated)
		case sent < 1000:
			t.Errorf("%s: sent = %v, want at least 1000", name, sent)
		case heard < 1000:
			t.Errorf("%s: heard = %v, want at least 1000", name, heard)
		}
	}
}

type constant struct{}

func (constant) NextFrame([]byte) bool { return true }
func (constant) FrameUnsent()          {}

type counting struct{ n *int }

func (c counting) HearFrame([]byte) { *c.n++ }
func (c counting) HearDigit(byte)   {}

func open(t *testing.T, settings Settings) (*Streams, *prometheus.Registry) {
	t.Helper()
	if !settings.Bind.IsValid() {
		settings.Bind = netip.MustParseAddr("127.0.0.1")
	}
	registry := prometheus.NewPedanticRegistry()
	streams, err := New(settings, registry)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- streams.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return streams, registry
}

func TestStreams_ExchangeAudioOverLoopback(t *testing.T) {
	for _, secure := range []bool{false, true} {
		streams, registry := open(t, Settings{})
		var ends [2]*Stream
		var voices [2]voice
		for i := range ends {
			var err error
			if ends[i], err = streams.Open(Leg{Source: &voices[i], Sink: &voices[i]}); err != nil {
				t.Fatal(err)
			}
		}
		for i, end := range ends {
			to := agreed(func(a *sdp.Agreed) { a.Remote = netip.AddrPortFrom(streams.settings.Bind, ends[1-i].Port()) })
			if secure {
				keyed(byte(1+i), byte(2-i))(&to)
			}
			if err := end.Connect(to); err != nil {
				t.Fatal(err)
			}
		}
		if err := ends[0].SendDigits("42"); err != nil {
			t.Fatal(err)
		}
		voices[1].mu.Lock()
		// The script is long, so that one copy of the text arrives completely even if the machine stalls.
		voices[1].script = strings.Repeat("hello", 1000)
		voices[1].mu.Unlock()
		testkit.Until(t, "both heard", func() bool {
			voices[0].mu.Lock()
			voices[1].mu.Lock()
			defer voices[0].mu.Unlock()
			defer voices[1].mu.Unlock()
			return strings.Contains(string(voices[0].heard), "hello") && voices[1].digits == "42"
		})
		before := ends[0].Close()
		after := ends[1].Close()
		switch {
		case before.Sent < 10:
			t.Errorf("before.Sent = %v, want at least 10", before.Sent)
		case after.Received < 10:
			t.Errorf("after.Received = %v, want at least 10", after.Received)
		case before.Forged+before.Malformed+before.UnknownSources+before.Unsent != 0:
			t.Errorf("before.Forged + before.Malformed + before.UnknownSources + before.Unsent = %v, want 0",
				before.Forged+before.Malformed+before.UnknownSources+before.Unsent)
		}
		if again := ends[0].Close(); again.Sent != before.Sent {
			t.Errorf("sent packets after Close = %d, want %d", again.Sent, before.Sent)
		}
		if err := ends[0].Connect(agreed()); !errors.Is(err, ErrClosed) {
			t.Errorf("Connect of a closed stream = %v", err)
		}
		want := fmt.Sprintf(
			"# HELP ringfence_dialer_rtp_packets_total RTP packets, by direction.\n# TYPE ringfence_dialer_rtp_packets_total "+
				"counter\n"+
				"ringfence_dialer_rtp_packets_total{direction=\"received\"} "+
				"%d\nringfence_dialer_rtp_packets_total{direction=\"sent\"} %d\n",
			ends[0].Stats().Received+after.Received,
			before.Sent+after.Sent,
		)
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "ringfence_dialer_rtp_packets_total"); err != nil {
			t.Error(err)
		}
		if problems, err := testutil.GatherAndLint(registry); err != nil {
			t.Errorf("GatherAndLint: %v", err)
		} else if len(problems) > 0 {
			t.Errorf("GatherAndLint: problems = %v, want none", problems)
		}
	}
}

func TestStreams_ExchangeAudioOverIPv6(t *testing.T) {
	if conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv6loopback}); err != nil {
		t.Skip("this machine has no IPv6:", err)
	} else {
		_ = conn.Close()
	}
	// A stream that is bound to :: must also be reachable over IPv4.
	for bind, reached := range map[string]string{"::1": "::1", "::": "127.0.0.1"} {
		streams, _ := open(t, Settings{Bind: netip.MustParseAddr(bind)})
		var source, hears voice
		// The script is long, so that packets arrive even if the machine stalls.
		source.script = strings.Repeat("six", 1000)
		a, err := streams.Open(Leg{Source: &source})
		if err != nil {
			t.Fatal(err)
		}
		b, err := streams.Open(Leg{Sink: &hears})
		if err != nil {
			t.Fatal(err)
		}
		for stream, to := range map[*Stream]*Stream{b: a, a: b} {
			remote := netip.AddrPortFrom(netip.MustParseAddr(reached), to.Port())
			if err := stream.Connect(agreed(func(a *sdp.Agreed) { a.Remote = remote })); err != nil {
				t.Fatal(err)
			}
		}
		testkit.Until(t, "heard over IPv6, both ways", func() bool {
			hears.mu.Lock()
			defer hears.mu.Unlock()
			return len(hears.heard) > 2 && a.Stats().Received > 0
		})
		if s := a.Close(); s.Unsent+s.UnknownSources > 0 {
			t.Errorf("%s to %s: s.Unsent+s.UnknownSources = %v, want 0", bind, reached, s.Unsent+s.UnknownSources)
		} else if s.Received == 0 {
			t.Errorf("%s to %s: Received = 0, want more", bind, reached)
		}
		b.Close()
	}
}

func TestStreams_ReserveThePortOfAClosedStream(t *testing.T) {
	streams, _ := open(t, Settings{PortLow: 42000, PortHigh: 42999, Rest: time.Hour})
	stream, err := streams.Open(Leg{})
	if errors.Is(err, ErrNoPort) {
		t.Skip("every port from 42000 to 42999 is in use")
	}
	if err != nil {
		t.Fatal(err)
	}
	stream.Close()
	if again, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(stream.Port())}); err == nil {
		t.Error("the port of a closed stream is free immediately")
		_ = again.Close()
	}
}

func FuzzReceivePacket(f *testing.F) {
	d := newStreamTest(f)
	for _, packet := range [][]byte{
		d.packet(1), d.packet(2, func(p *rtp.Packet) { p.PayloadType, p.Payload = 101, []byte{5, 0x8A, 1, 64} }),
		append([]byte{0x9F, 0, 0, 1}, bytes.Repeat([]byte{0xBE, 0xDE, 0, 9}, 40)...),
	} {
		f.Add(packet, packet)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		for _, secure := range []bool{false, true} {
			d := newStreamTest(t)
			to := agreed()
			if secure {
				keyed(1, 2)(&to)
			}
			if err := d.Connect(to); err != nil {
				t.Fatal(err)
			}
			for _, packet := range [][]byte{first, second, first} {
				d.receivePacket(bytes.Clone(packet), far, d.time)
				d.receivePacket(bytes.Clone(packet), unknownSource, d.time)
				d.run(frameTime)
			}
			switch s := d.Stats(); {
			case s.UnknownSources != 3:
				t.Errorf("UnknownSources = %v, want 3", s.UnknownSources)
			case len(d.heard) > 3*40:
				t.Errorf("length of received frames = %v, want at most %v", len(d.heard), 3*40)
			case len(d.digits) > 3:
				t.Errorf("length of received digits = %v, want at most 3", len(d.digits))
			}
			if cap(d.in.header.Extensions) > 16 {
				t.Errorf("capacity for extensions = %d, want less", cap(d.in.header.Extensions))
			}
		}
	})
}
