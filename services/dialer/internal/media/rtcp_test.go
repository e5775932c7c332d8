package media

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/dialer/internal/sdp"
)

// receiverReport returns an RTCP packet as in RFC 3550 section 6.4.2.
func receiverReport() []byte { return []byte{0x80, 201, 0, 1, 0, 0, 0, 77} }

// A phone sends no audio, because of silence suppression or a mute button. But it sends an RTCP
// report every 5 s.
func TestTimeout_RTCPPacketRestartsTheTimeout(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		packet []byte
		from   netip.Addr
		want   uint64
	}{
		{name: "receiver report", packet: receiverReport(), from: far.Addr()},
		{name: "report from an unknown address", packet: receiverReport(), from: netip.MustParseAddr("192.0.2.99"), want: 1},
		{name: "packet too short", packet: receiverReport()[:4], from: far.Addr(), want: 1},
		{name: "not RTCP", packet: make([]byte, 20), from: far.Addr(), want: 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := newStreamTest(t)
			d.connect(t)
			d.speak(far, 50)
			for range 6 {
				d.run(5 * time.Second)
				d.receiveRTCP(test.packet, test.from, d.time)
			}
			if got := d.Stats().Timeouts; got != test.want {
				t.Errorf("timeouts in 30 s = %d, want %d", got, test.want)
			}
			d.run(16 * time.Second)
			if got := d.Stats().Timeouts; got != 1 {
				t.Errorf("timeouts after the last report = %d, want 1", got)
			}
		})
	}
}

// Leg.Timeout replaces Settings.FirstPacket only if it is longer than Settings.FirstPacket.
func TestTimeout_TimeoutOfALegReplacesTheDefaultTimeout(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		timeout time.Duration
		spoken  bool
		quiet   time.Duration // length of a period without packets and without timeouts
		want    uint64        // number of timeouts 2 s later
	}{
		{name: "shorter timeout", timeout: 5 * time.Second, spoken: true, quiet: 4 * time.Second, want: 1},
		{name: "longer timeout", timeout: time.Minute, spoken: true, quiet: 59 * time.Second, want: 1},
		{name: "shorter timeout before the first packet", timeout: 5 * time.Second, quiet: 29 * time.Second, want: 1},
		{name: "longer timeout before the first packet", timeout: time.Minute, quiet: 59 * time.Second, want: 1},
		{name: "timeout turned off", timeout: NoTimeout, spoken: true, quiet: time.Hour},
		{name: "timeout turned off before the first packet", timeout: NoTimeout, quiet: time.Hour},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := newStreamTest(t)
			d.leg.Timeout = test.timeout
			d.connect(t)
			if test.spoken {
				d.speak(far, 1)
			}
			d.run(test.quiet)
			if got := d.Stats().Timeouts; got != 0 {
				t.Errorf("timeouts after %v = %d, want 0", test.quiet, got)
			}
			d.run(2 * time.Second)
			if got := d.Stats().Timeouts; got != test.want {
				t.Errorf("timeouts 2 s later = %d, want %d", got, test.want)
			}
		})
	}
}

func TestOpen_ReceivesRTCPOnThePortAfterTheRTPPort(t *testing.T) {
	t.Parallel()
	bind := netip.MustParseAddr("127.0.0.1")
	streams, err := New(Settings{Bind: bind, PortLow: 38000, PortHigh: 39998}, nil)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	stream, err := streams.Open(Leg{})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	defer stream.Close()
	remote := netip.AddrPortFrom(bind, 9)
	if err := stream.Connect(agreed(func(a *sdp.Agreed) { a.Remote = remote })); err != nil {
		t.Fatalf("Connect: %v", err)
	}
	alive := func() time.Duration {
		stream.in.mu.Lock()
		defer stream.in.mu.Unlock()
		return stream.in.alive
	}
	before := alive()
	conn, err := net.Dial("udp", netip.AddrPortFrom(bind, stream.Port()+1).String())
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	defer func() { _ = conn.Close() }()
	for deadline := time.Now().Add(testkit.Timeout); alive() == before; {
		if time.Now().After(deadline) {
			t.Fatal("the report was not read")
		}
		if _, err := conn.Write(receiverReport()); err != nil {
			t.Fatalf("Write: %v", err)
		}
	}
}
