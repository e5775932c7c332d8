package media

import (
	"net"
	"net/netip"
	"time"
)

// rtcpHeader is the length of the shortest RTCP packet, in bytes (RFC 3550 section 6.4).
const rtcpHeader = 8

// listenRTCP binds the port above the stream's port, at which RTCP arrives (RFC 3550 section 11).
// If another program uses that port, the stream works without RTCP. RTCP only shows that the far
// end is alive.
func (s *Stream) listenRTCP() {
	number := s.Port()
	if number%2 != 0 {
		return
	}
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(s.streams.settings.Bind, number+1)))
	if err != nil {
		return
	}
	s.rtcp = conn
	go s.readRTCP(conn)
}

func (s *Stream) readRTCP(conn *net.UDPConn) {
	buffer := make([]byte, 2048)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return
		}
		s.receiveRTCP(buffer[:n], from.Addr().Unmap(), s.streams.now())
	}
}

// receiveRTCP restarts the timeout if an RTCP or SRTCP packet arrives from the far end's IP
// address. A far end that sends no audio, because of silence suppression or a mute button, still
// sends RTCP.
func (s *Stream) receiveRTCP(packet []byte, from netip.Addr, now time.Duration) {
	if len(packet) < rtcpHeader || packet[0]>>6 != 2 || packet[1] < 192 || packet[1] > 223 {
		return
	}
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	if s.in.closed || s.in.direction == "" || from != s.in.latch.Target().Addr() {
		return
	}
	s.in.alive, s.in.timeoutReported = now, false
}

// timeout returns the time without packets after which the stream times out. A negative value means
// that it never does.
func (s *Stream) timeout() time.Duration {
	first, limit := s.streams.settings.FirstPacket, s.streams.settings.Silence
	if s.leg.Timeout != 0 {
		limit = s.leg.Timeout
	}
	if limit < 0 || s.in.heard {
		return limit
	}
	return max(first, limit)
}
