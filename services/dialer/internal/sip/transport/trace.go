package transport

import (
	"net"
	"net/netip"
	"time"

	"github.com/emiago/sipgo/sip"

	"ringfence.dev/services/dialer/internal/siptrace"
)

func (l *Transport) tracing() bool { return l.cfg.Tracing != nil && l.cfg.Tracing() }

// traceDatagram records a datagram exactly as it was sent or received. It also records
// retransmissions.
func (l *Transport) traceDatagram(sent bool, at net.Addr, data []byte) {
	peer, err := netip.ParseAddrPort(at.String())
	if err != nil {
		return
	}
	l.cfg.Trace(siptrace.Message{
		At: time.Now(), Sent: sent, Transport: UDP, Local: l.localAddress(UDP), Peer: peer,
		CallID: callIDOf(data), Data: data,
	})
}

// TraceSent records a message that was sent over TCP or TLS. (datagramConn records datagrams.)
func (l *Transport) TraceSent(msg sip.Message, at time.Time) {
	if msg.Transport() != UDP && l.tracing() {
		l.traceMessage(true, msg, msg.Destination(), at)
	}
}

func (l *Transport) traceReceived(msg sip.Message) {
	if msg.Transport() != UDP && l.tracing() {
		l.traceMessage(false, msg, msg.Source(), time.Now())
	}
}

func (l *Transport) traceMessage(sent bool, msg sip.Message, address string, at time.Time) {
	peer, err := netip.ParseAddrPort(address)
	id := msg.CallID()
	if err != nil || id == nil {
		return
	}
	l.cfg.Trace(siptrace.Message{
		At: at, Sent: sent, Transport: msg.Transport(), Local: l.localAddress(msg.Transport()), Peer: peer,
		CallID: id.Value(), Data: []byte(msg.String()),
	})
}

// localAddress returns the address at which peers reach this side over the transport.
func (l *Transport) localAddress(transport string) netip.AddrPort {
	addr, err := netip.ParseAddr(l.cfg.Advertised)
	if err != nil { // err means that Advertised is a host name
		addr, _ = netip.AddrFromSlice(l.udp.IP)
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(l.ports[transport])) //nolint:gosec // a port has 16 bits
}
