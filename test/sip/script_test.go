package sip_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

type script []string

const tag = ";tag=[pid]far[call_number]"

// receiveOver returns a script that receives an INVITE. The proxy must have received the INVITE
// over the given transport.
func receiveOver(transport string) script {
	s := storeAddresses()
	s[0] = strings.Replace(s[0], "</action>", `<ereg regexp="^ *`+transport+`$" search_in="hdr" header="X-Came-Over:" check_it="true" assign_to="4"/></action>`, 1)
	return append(s, `<Reference variables="4"/>`)
}

// storeAddresses stores the addresses of the INVITE for later requests in the dialog.
func storeAddresses() script {
	return script{`<recv request="INVITE" rrs="true"><action>
	<ereg regexp="sip:[^&gt;]*" search_in="hdr" header="Contact:" assign_to="1"/>
	<ereg regexp="[^ ].*" search_in="hdr" header="From:" assign_to="2"/>
	<ereg regexp="[^ ].*" search_in="hdr" header="To:" assign_to="3"/>
	</action></recv>`}
}

func (s script) send(text, body string, headers ...string) script {
	for _, header := range headers {
		text += header + "\n"
	}
	if body != "" {
		text += "Content-Type: application/sdp\n"
	}
	return append(s, "<send><![CDATA[\n\n"+text+"Content-Length: [len]\n\n"+body+"\n]]></send>")
}

func (s script) respond(code int, tag, body string, headers ...string) script {
	return s.send(fmt.Sprintf("SIP/2.0 %d Status\n[last_Via:]\n[last_From:]\n[last_To:]%s\n[last_Call-ID:]\n[last_CSeq:]\n[last_Record-Route:]\n"+
		"Contact: <sip:far@[local_ip]:[local_port];transport=[transport]>\n", code, tag), body, headers...)
}

func (s script) say(code int, body string, headers ...string) script {
	return s.respond(code, tag, body, headers...)
}
func (s script) ok(body string, headers ...string) script {
	return s.respond(200, "", body, headers...)
}

// request adds a step that sends a request within the dialog. The following step must receive the
// response.
func (s script) request(method, body string, seq int, headers ...string) script {
	return s.send(fmt.Sprintf("%s [$1] SIP/2.0\nVia: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]\nFrom: [$3]%s\nTo: [$2]\nCall-ID: [call_id]\nCSeq: %d %s\n[routes]\nMax-Forwards: 70\n"+
		"Contact: <sip:far@[local_ip]:[local_port];transport=[transport]>\n", method, tag, seq, method), body, headers...)
}

func (s script) hear(method string) script {
	return append(s, fmt.Sprintf(`<recv request=%q rrs="true"/>`, method))
}

func (s script) response(code int) script {
	return append(s, fmt.Sprintf(`<recv response="100" optional="true"/><recv response="%d"/>`, code))
}

func (s script) pause(d time.Duration) script {
	return append(s, fmt.Sprintf(`<pause milliseconds="%d"/>`, d.Milliseconds()))
}

// The pause between 180 and 200 is necessary, because the proxy could otherwise change their order.
func (s script) answer(body string, headers ...string) script {
	return s.say(180, "").pause(300*time.Millisecond).say(200, body, headers...).hear("ACK")
}
func (s script) hungUp() script  { return s.hear("BYE").ok("") }
func (s script) hangsUp() script { return s.request("BYE", "", 77).response(200) }

func (s script) canceled() script {
	s = append(s, `<recv request="CANCEL"/>`).ok("")
	return append(s, `<send><![CDATA[

SIP/2.0 487 Request Terminated
[last_Via:]
[last_From:]
[last_To:]`+tag+`
[last_Call-ID:]
CSeq: [cseq] INVITE
Content-Length: 0

]]></send>`).hear("ACK")
}

const (
	headerSize, frameBytes = 12, 160
	frameTime              = 20 * time.Millisecond
	eventType              = 101
)

// ear sends and receives the audio of a phone. It sends silence after the first packet that it
// receives.
type ear struct {
	conn *net.UDPConn
	port int

	mu      sync.Mutex
	frames  int
	loud    int
	kind    byte
	lastAt  time.Time
	longest time.Duration // the longest time between two consecutive packets
	since   int           // the number of loud frames after the longest time without a packet
	digits  string
	pressed uint32 // the RTP timestamp of the last received telephone event
	press   string
	number  uint16
	// muted stops the audio after a second. If reports is true, the ear then sends RTCP reports.
	muted, reports bool
}

func listen(t *testing.T) *ear {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	e := &ear{conn: conn, port: conn.LocalAddr().(*net.UDPAddr).Port}
	go e.listen()
	return e
}

func (e *ear) description(direction string) string {
	return fmt.Sprintf("v=0\no=far 1 %d IN IP4 127.0.0.1\ns=-\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio %d RTP/AVP 0 %d\na=rtpmap:0 PCMU/8000\na=rtpmap:%[3]d telephone-event/8000\na=fmtp:%[3]d 0-15\na=%[4]s\n",
		len(direction), e.port, eventType, direction)
}

func (e *ear) listen() {
	packet := make([]byte, 1500)
	for {
		n, from, err := e.conn.ReadFromUDPAddrPort(packet)
		if err != nil {
			return
		}
		if n < headerSize+4 {
			continue
		}
		e.mu.Lock()
		if e.frames++; e.frames == 1 {
			go e.speak(from)
		}
		if now := time.Now(); !e.lastAt.IsZero() && now.Sub(e.lastAt) > e.longest {
			e.longest, e.since = now.Sub(e.lastAt), 0
		}
		e.lastAt = time.Now()
		payload, stamp := packet[headerSize:n], binary.BigEndian.Uint32(packet[4:])
		switch {
		case packet[1]&0x7F == eventType:
			if stamp != e.pressed || e.digits == "" {
				e.digits += string("0123456789*#"[payload[0]%12])
			}
			e.pressed = stamp
		case packet[1]&0x7F != 0:
			e.kind = packet[1] & 0x7F
		case payload[0]&0x7F < 0x50 || payload[1]&0x7F < 0x50: // a sample is louder than a whisper
			e.loud, e.since = e.loud+1, e.since+1
		}
		e.mu.Unlock()
	}
}

func (e *ear) speak(to netip.AddrPort) {
	tick := time.NewTicker(frameTime)
	defer tick.Stop()
	packet := make([]byte, headerSize+frameBytes)
	packet[0] = 2 << 6
	binary.BigEndian.PutUint32(packet[8:], 0xE2E)
	for stamp := uint32(0); ; stamp += frameBytes {
		<-tick.C
		e.mu.Lock()
		keys := e.press
		e.press = ""
		muted, reports := e.muted && stamp > 50*frameBytes, e.reports
		e.mu.Unlock()
		if muted {
			if reports && stamp%(150*frameBytes) == 0 {
				e.report(to)
			}
			continue
		}
		for _, key := range keys {
			for n := range 7 { // the event takes 80 ms, and its end is sent three times (RFC 4733 2.5.1.4)
				event := []byte{byte(key - '0'), 10, 0, 0}
				binary.BigEndian.PutUint16(event[2:], uint16(min(n+1, 5)*frameBytes))
				if n >= 4 {
					event[1] |= 0x80
				}
				if e.write(to, packet[:headerSize+copy(packet[headerSize:], event)], eventType, stamp) != nil {
					return
				}
				<-tick.C
			}
			stamp += 7 * frameBytes
		}
		for i := range packet[headerSize:] {
			packet[headerSize+i] = 0xFF
		}
		if e.write(to, packet, 0, stamp) != nil {
			return
		}
	}
}

func (e *ear) write(to netip.AddrPort, packet []byte, kind byte, stamp uint32) error {
	e.number++ // only one goroutine accesses the number
	packet[1] = kind
	binary.BigEndian.PutUint16(packet[2:], e.number)
	binary.BigEndian.PutUint32(packet[4:], stamp)
	_, err := e.conn.WriteToUDPAddrPort(packet, to)
	return err
}

// report sends an empty RTCP receiver report (RFC 3550 section 6.4.2) to the port above the RTP
// port.
func (e *ear) report(to netip.AddrPort) {
	packet := []byte{0x80, 201, 0, 1, 0, 0, 0x0E, 0x2E}
	_, _ = e.conn.WriteToUDPAddrPort(packet, netip.AddrPortFrom(to.Addr(), to.Port()+1))
}

func (e *ear) heard() (frames, loud int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.frames, e.loud
}

func (e *ear) hears(t *testing.T, what string, cond func() bool) {
	t.Helper()
	until(t, "the person hears "+what, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return cond()
	})
}

func (e *ear) presses(keys string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.press += keys
}
