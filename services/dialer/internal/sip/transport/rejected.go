package transport

import (
	"bytes"
	"net"
	"net/netip"
	"strings"
)

// Rejected is an INVITE or a connection from an address that Admit refused. Its texts are copied
// from the INVITE and cut to 256 bytes. They are empty for a connection.
type Rejected struct {
	Source                      netip.AddrPort
	Transport                   string
	CallID, From, To, UserAgent string
}

// maxHeaderText is the maximum length of each text in a Rejected, in bytes.
const maxHeaderText = 256

// reportDatagram calls Config.Rejected for a dropped datagram that is an INVITE.
func (l *Transport) reportDatagram(from net.Addr, data []byte) {
	if l.cfg.Rejected == nil || !bytes.HasPrefix(data, []byte("INVITE ")) {
		return
	}
	l.cfg.Rejected(Rejected{
		Source: addressOf(from), Transport: UDP, CallID: truncate(callIDOf(data)),
		From: truncate(headerValue(data, "From", "f")), To: truncate(headerValue(data, "To", "t")),
		UserAgent: truncate(headerValue(data, "User-Agent", "User-Agent")),
	})
}

func (l *Transport) reportConnection(from net.Addr, transport string) {
	if l.cfg.Rejected != nil {
		l.cfg.Rejected(Rejected{Source: addressOf(from), Transport: transport})
	}
}

// addressOf returns the IP address and the port of a net.Addr. It returns the zero value if the
// net.Addr has another format.
func addressOf(from net.Addr) netip.AddrPort {
	at, _ := netip.ParseAddrPort(from.String())
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

func truncate(text string) string { return strings.Clone(text[:min(len(text), maxHeaderText)]) }

// callIDOf returns the Call-ID of an unparsed message, or "".
func callIDOf(data []byte) string { return headerValue(data, "Call-ID", "i") }

// headerValue returns the value of the first header with the long or short name in an unparsed
// message. It returns "" if there is no such header.
func headerValue(data []byte, long, short string) string {
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
