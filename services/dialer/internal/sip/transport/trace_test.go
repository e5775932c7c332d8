package transport

import (
	"net"
	"testing"

	"ringfence.dev/services/dialer/internal/siptrace"
)

type idleConn struct {
	net.PacketConn
	peer net.Addr
}

func (c idleConn) WriteTo(data []byte, _ net.Addr) (int, error) { return len(data), nil }

func (c idleConn) ReadFrom(into []byte) (int, net.Addr, error) { return len(into), c.peer, nil }

func TestDatagramConn_DoesNotAllocateIfTracingIsOff(t *testing.T) {
	peer := &net.UDPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 5060}
	recorded := 0
	var recorder siptrace.Recorder
	l := &Transport{cfg: Config{Tracing: recorder.IsRecording, Trace: func(siptrace.Message) { recorded++ }}}
	var conn net.PacketConn = &datagramConn{PacketConn: idleConn{peer: peer}, line: l}
	data := []byte("OPTIONS sip:a SIP/2.0\r\nCall-ID: one\r\n\r\n")
	allocations := testing.AllocsPerRun(100, func() {
		_, _ = conn.WriteTo(data, peer)
		_, _, _ = conn.ReadFrom(data)
	})
	if allocations != 0 {
		t.Errorf("allocations = %v, want 0", allocations)
	}
	if recorded != 0 {
		t.Errorf("recorded messages = %d, want 0", recorded)
	}
}
