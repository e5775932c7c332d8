package transport

import (
	"bytes"
	"net"
	"net/netip"
	"strings"
)

// Rejected is an INVITE, or a connection, from an address that Admit refused. Its texts are as they came, cut to 256
// bytes; they are empty for a connection.
type Rejected struct {
	Source                      netip.AddrPort
	Transport                   string
	CallID, From, To, UserAgent string
}

// maxHeaderText bounds the texts of a Stranger.
const maxHeaderText = 256

// reportDatagram reports a datagram that was dropped to Stranger, if it is an INVITE.
func (l *Transport) reportDatagram(from net.Addr, data []byte) {
	if l.cfg.Rejected == nil || !bytes.HasPrefix(data, []byte("INVITE ")) {
		return
	}
	l.cfg.Rejected(Rejected{
		Source: addressOf(from), Transport: UDP, CallID: cut(callID(data)), From: cut(header(data, "From", "f")),
		To: cut(header(data, "To", "t")), UserAgent: cut(header(data, "User-Agent", "User-Agent")),
	})
}

// reportConnection reports a connection that was closed to Stranger.
func (l *Transport) reportConnection(from net.Addr, transport string) {
	if l.cfg.Rejected != nil {
		l.cfg.Rejected(Rejected{Source: addressOf(from), Transport: transport})
	}
}

// addressOf returns the zero value for an address that is none.
func addressOf(from net.Addr) netip.AddrPort {
	at, _ := netip.ParseAddrPort(from.String())
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

func cut(text string) string { return strings.Clone(text[:min(len(text), maxHeaderText)]) }

// callID is the Call-ID of a message that was not parsed; empty if there is none.
func callID(data []byte) string { return header(data, "Call-ID", "i") }

// header is the first header of a name, or of its short form, in a message that was not parsed; empty if there is none.
func header(data []byte, long, short string) string {
	text := string(data)
	for i := strings.IndexByte(text, '\n'); i >= 0; i = strings.IndexByte(text, '\n') {
		text = text[i+1:]
		end := strings.IndexAny(text, "\r\n")
		if end <= 0 {
			return ""
		}
		name, value, _ := strings.Cut(text[:end], ":")
		name = strings.TrimSpace(name)
		if strings.EqualFold(name, long) || strings.EqualFold(name, short) {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
