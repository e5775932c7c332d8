package alerts

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// phone is the far end of a SIP trunk at a UDP port of the loopback network. It answers calls and
// accepts every other request.
type phone struct {
	port, audio int
	deaf        atomic.Bool // true: the phone does not respond to any message
	full        atomic.Bool // true: the phone refuses calls
	talks       atomic.Int64
}

func newPhone(t *testing.T) *phone {
	t.Helper()
	open := func() *net.UDPConn {
		conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	signals, audio := open(), open() // received audio is discarded
	p := &phone{port: signals.LocalAddr().(*net.UDPAddr).Port, audio: audio.LocalAddr().(*net.UDPAddr).Port}
	go func() {
		buffer := make([]byte, 1<<16)
		for {
			n, from, err := signals.ReadFromUDP(buffer)
			if err != nil {
				return
			}
			for _, answer := range p.responses(string(buffer[:n])) {
				_, _ = signals.WriteToUDP([]byte(answer), from)
			}
		}
	}()
	return p
}

// responses returns the responses to a message (RFC 3261 section 8.2).
func (p *phone) responses(message string) (all []string) {
	method, _, _ := strings.Cut(message, " ")
	switch {
	case p.deaf.Load(), strings.HasPrefix(method, "SIP/"):
		return nil
	case method == "ACK":
		p.talks.Add(1)
		return nil
	case method == "INVITE" && p.full.Load():
		return []string{p.response(message, "503 Service Unavailable", "")}
	case method == "INVITE":
		sdp := fmt.Sprintf("v=0\r\no=phone 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio %d RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n", p.audio)
		return []string{p.response(message, "180 Ringing", ""), p.response(message, "200 OK", sdp)}
	}
	return []string{p.response(message, "200 OK", "")}
}

func (p *phone) response(request, status, body string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "SIP/2.0 %s\r\n", status)
	for line := range strings.SplitSeq(request, "\r\n") {
		name, _, _ := strings.Cut(line, ":")
		switch name {
		case "To":
			if !strings.Contains(line, "tag=") {
				line += ";tag=phone"
			}
			fmt.Fprintf(&out, "%s\r\n", line)
		case "Via", "From", "Call-ID", "CSeq", "Record-Route":
			fmt.Fprintf(&out, "%s\r\n", line)
		case "Contact": // the response to a REGISTER repeats the contact of the request
			if strings.HasPrefix(request, "REGISTER") {
				fmt.Fprintf(&out, "%s;expires=60\r\n", line)
			}
		case "":
			if strings.HasPrefix(request, "INVITE") {
				fmt.Fprintf(&out, "Contact: <sip:phone@127.0.0.1:%d>\r\n", p.port)
			}
			if body != "" {
				out.WriteString("Content-Type: application/sdp\r\n")
			}
			fmt.Fprintf(&out, "Content-Length: %d\r\n\r\n%s", len(body), body)
			return out.String()
		}
	}
	return out.String()
}
