package failover

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ringfence.dev/libs/testkit"
)

const (
	// retransmitInterval is the time between two transmissions of a message that the other side has
	// not acknowledged. After transactionTimeout, the message is not sent any more.
	retransmitInterval = 500 * time.Millisecond
	transactionTimeout = 32 * time.Second
	packetInterval     = 20 * time.Millisecond
	samplesPerPacket   = 160
)

// behavior is what a person does with a call. If busy is true, the phone refuses the call after it
// has rung. If patient is true, the person does not hang up before the trial calls release.
type behavior struct {
	rings, talks  time.Duration
	busy, patient bool
}

// phones is the far end of a SIP trunk over UDP. Each dialed number is the phone of a person. The
// phone rings, answers, sends audio, and hangs up. It responds to the address from which a request
// came, because another dialer can hang up the call of a killed dialer.
type phones struct {
	t    *testing.T
	conn *net.UDPConn
	of   func(number string) behavior

	// released is closed when patient people may hang up.
	released chan struct{}

	mu    sync.Mutex
	calls map[string]*phoneCall // by Call-ID
	order []string
	stop  context.Context // ends all phones
}

// phoneCall is one call that a phone received. The time of an event that did not happen is zero.
type phoneCall struct {
	callID, number string
	// sentBy is the SIP address of the dialer that sent the INVITE.
	sentBy string
	// invites is the number of INVITEs without retransmissions.
	invites                     int
	begun, rang, answered, over time.Time
	// hungUp is true if a dialer ended the call, with BYE or CANCEL, before the person did.
	hungUp bool
	// lastAudio is the time at which the last RTP packet of the dialer arrived.
	lastAudio time.Time

	invite       sipMessage
	source       *net.UDPAddr
	tag          string
	lastResponse []byte
	acked, ended chan struct{}
	byeAnswered  chan struct{}
}

func startPhones(t *testing.T, of func(number string) behavior) *phones {
	t.Helper()
	port, err := testkit.Port()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	p := &phones{
		t: t, conn: conn, of: of, released: make(chan struct{}), calls: map[string]*phoneCall{}, stop: t.Context(),
	}
	var reading sync.WaitGroup
	reading.Go(p.read)
	t.Cleanup(func() { _ = conn.Close(); reading.Wait() })
	return p
}

// release lets patient people hang up.
func (p *phones) release() { close(p.released) }

func (p *phones) port() int { return p.conn.LocalAddr().(*net.UDPAddr).Port }

// received returns the calls so far, in the order of their first INVITE.
func (p *phones) received() (calls []phoneCall) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range p.order {
		calls = append(calls, *p.calls[id])
	}
	return calls
}

func (p *phones) read() {
	buffer := make([]byte, 65_535)
	for {
		n, source, err := p.conn.ReadFromUDP(buffer)
		if err != nil {
			return // the socket was closed
		}
		if m, ok := parseMessage(string(buffer[:n])); ok {
			p.handle(m, source)
		}
	}
}

func (p *phones) send(data []byte, to *net.UDPAddr) { _, _ = p.conn.WriteToUDP(data, to) }

func (p *phones) handle(m sipMessage, source *net.UDPAddr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.calls[m.header("Call-ID")]
	method, _, _ := strings.Cut(m.start, " ")
	switch {
	case method == "SIP/2.0":
		if c != nil && strings.HasSuffix(m.header("CSeq"), " BYE") {
			closeOnce(c.byeAnswered)
		}
	case method == "INVITE" && !strings.Contains(m.header("To"), ";tag="):
		p.handleInvite(c, m, source)
	case method == "OPTIONS":
		p.send(m.response("200 OK", "", ""), source)
	case c == nil:
		if method != "ACK" {
			p.send(m.response("481 Call Does Not Exist", "unknown", ""), source)
		}
	case method == "ACK":
		closeOnce(c.acked)
	case method == "CANCEL":
		p.send(m.response("200 OK", c.tag, ""), source)
		if c.answered.IsZero() && c.over.IsZero() {
			c.lastResponse = c.invite.response("487 Request Terminated", c.tag, "")
			p.send(c.lastResponse, c.source)
			c.endByDialer()
		}
	case method == "BYE":
		p.send(m.response("200 OK", c.tag, ""), source)
		if c.over.IsZero() {
			c.endByDialer()
		}
	default: // a request within the call, for example the refresh of a session
		p.send(m.response("200 OK", c.tag, ""), source)
	}
}

func (c *phoneCall) endByDialer() {
	c.over, c.hungUp = time.Now(), true
	closeOnce(c.ended)
}

func closeOnce(done chan struct{}) {
	select {
	case <-done:
	default:
		close(done)
	}
}

// handleInvite begins a call. The caller must hold mu.
func (p *phones) handleInvite(c *phoneCall, m sipMessage, source *net.UDPAddr) {
	if c != nil {
		if m.branch() != c.invite.branch() {
			c.invites++
		}
		p.send(c.lastResponse, source)
		return
	}
	number, _, _ := strings.Cut(strings.TrimPrefix(m.start, "INVITE sip:"), "@")
	c = &phoneCall{
		callID: m.header("Call-ID"), number: number, sentBy: m.sentBy(), invites: 1, begun: time.Now(),
		invite: m, source: source, tag: fmt.Sprintf("phone%d", len(p.order)),
		acked: make(chan struct{}), ended: make(chan struct{}), byeAnswered: make(chan struct{}),
	}
	p.calls[c.callID], p.order = c, append(p.order, c.callID)
	c.rang = c.begun
	p.respond(c, "180 Ringing", "")
	go p.script(c, p.of(number))
}

// respond sends a response to the INVITE. The caller must hold mu.
func (p *phones) respond(c *phoneCall, status, sdp string) {
	contact := fmt.Sprintf("Contact: <sip:%s@%s>", c.number, p.conn.LocalAddr())
	c.lastResponse = c.invite.response(status, c.tag, sdp, contact)
	p.send(c.lastResponse, c.source)
}

// script plays the person, from the first ring to the end of the call.
func (p *phones) script(c *phoneCall, person behavior) {
	if !p.wait(person.rings, c.ended) {
		return
	}
	audio, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		p.t.Errorf("open a socket for audio: %v", err)
		return
	}
	defer audio.Close()
	p.mu.Lock()
	if !c.over.IsZero() {
		p.mu.Unlock()
		return
	}
	if person.busy {
		c.over = time.Now()
		p.respond(c, "486 Busy Here", "")
		p.mu.Unlock()
		p.repeat(c.lastResponse, c.source, c.acked)
		return
	}
	c.answered = time.Now()
	p.respond(c, "200 OK", fmt.Sprintf("v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"+
		"m=audio %d RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n", audio.LocalAddr().(*net.UDPAddr).Port))
	answer := c.lastResponse
	p.mu.Unlock()
	go p.repeat(answer, c.source, c.acked)
	go p.hear(c, audio)
	go p.speak(c, audio)
	if !p.wait(person.talks, c.ended) || person.patient && !p.awaitRelease(c.ended) {
		return
	}
	p.mu.Lock()
	mine := c.over.IsZero()
	if mine {
		c.over = time.Now()
		closeOnce(c.ended)
	}
	p.mu.Unlock()
	if mine {
		p.repeat(c.bye(p.conn.LocalAddr()), c.source, c.byeAnswered)
	}
}

// wait returns false if the call ends within the time.
func (p *phones) wait(d time.Duration, ended <-chan struct{}) bool {
	select {
	case <-time.After(d):
		return true
	case <-ended:
	case <-p.stop.Done():
	}
	return false
}

// awaitRelease returns false if the call ends before the release.
func (p *phones) awaitRelease(ended <-chan struct{}) bool {
	select {
	case <-p.released:
		return true
	case <-ended:
	case <-p.stop.Done():
	}
	return false
}

// repeat sends a message until the other side acknowledges it.
func (p *phones) repeat(data []byte, to *net.UDPAddr, acknowledged <-chan struct{}) {
	for begun := time.Now(); time.Since(begun) < transactionTimeout; {
		p.send(data, to)
		if !p.wait(retransmitInterval, acknowledged) {
			return
		}
	}
}

// hear reads the audio of the dialer until the socket is closed.
func (p *phones) hear(c *phoneCall, audio *net.UDPConn) {
	buffer := make([]byte, 2048)
	for {
		if _, _, err := audio.ReadFromUDP(buffer); err != nil {
			return
		}
		p.mu.Lock()
		c.lastAudio = time.Now()
		p.mu.Unlock()
	}
}

// speak sends a tone to the address in the SDP offer until the call ends.
func (p *phones) speak(c *phoneCall, audio *net.UDPConn) {
	to, err := net.ResolveUDPAddr("udp", c.invite.audioAddress())
	if err != nil {
		p.t.Errorf("read the SDP offer of call %s: %v", c.callID, err)
		return
	}
	half := samplesPerPacket / 16
	tone := append(bytes.Repeat([]byte{0x30}, half), bytes.Repeat([]byte{0xb0}, half)...)
	packet := append(make([]byte, 12), bytes.Repeat(tone, samplesPerPacket/len(tone))...)
	packet[0] = 2 << 6 // the version of RTP; payload type 0 is PCMU
	ticker := time.NewTicker(packetInterval)
	defer ticker.Stop()
	for n := uint32(0); ; n++ {
		binary.BigEndian.PutUint16(packet[2:], uint16(n))
		binary.BigEndian.PutUint32(packet[4:], n*samplesPerPacket)
		_, _ = audio.WriteToUDP(packet, to)
		select {
		case <-c.ended:
			return
		case <-p.stop.Done():
			return
		case <-ticker.C:
		}
	}
}

// bye returns the BYE of the phone.
func (c *phoneCall) bye(local net.Addr) []byte {
	contact := strings.Trim(c.invite.header("Contact"), "<>")
	return fmt.Appendf(nil, "BYE %s SIP/2.0\r\nVia: SIP/2.0/UDP %s;branch=z9hG4bK-%s\r\nMax-Forwards: 70\r\n"+
		"From: %s;tag=%s\r\nTo: %s\r\nCall-ID: %s\r\nCSeq: 1 BYE\r\nContent-Length: 0\r\n\r\n",
		contact, local, c.tag, c.invite.header("To"), c.tag, c.invite.header("From"), c.callID)
}

// sipMessage is a SIP request or response. Each header is a line without its line break.
type sipMessage struct {
	start   string
	headers []string
	body    string
}

func parseMessage(text string) (m sipMessage, ok bool) {
	head, body, ok := strings.Cut(text, "\r\n\r\n")
	lines := strings.Split(head, "\r\n")
	m = sipMessage{start: lines[0], headers: lines[1:], body: body}
	return m, ok && m.header("Call-ID") != ""
}

// header returns the value of the first header with the name, or "".
func (m sipMessage) header(name string) string {
	i := slices.IndexFunc(m.headers, func(line string) bool {
		key, _, _ := strings.Cut(line, ":")
		return strings.EqualFold(strings.TrimSpace(key), name)
	})
	if i < 0 {
		return ""
	}
	_, value, _ := strings.Cut(m.headers[i], ":")
	return strings.TrimSpace(value)
}

var (
	viaBranch   = regexp.MustCompile(`;branch=([^;,\s]+)`)
	viaSentBy   = regexp.MustCompile(`^SIP/2\.0/UDP ([^;,\s]+)`)
	sdpAddress  = regexp.MustCompile(`(?m)^c=IN IP4 (\S+)`)
	sdpPort     = regexp.MustCompile(`(?m)^m=audio (\d+) `)
	copiedNames = []string{"via", "from", "call-id", "cseq"}
)

func group(pattern *regexp.Regexp, text string) string {
	if found := pattern.FindStringSubmatch(text); found != nil {
		return found[1]
	}
	return ""
}

func (m sipMessage) branch() string { return group(viaBranch, m.header("Via")) }
func (m sipMessage) sentBy() string { return group(viaSentBy, m.header("Via")) }

// audioAddress returns the address in the SDP to which audio must be sent.
func (m sipMessage) audioAddress() string {
	return group(sdpAddress, m.body) + ":" + group(sdpPort, m.body)
}

// response returns a response to the request. tag is the tag of this side.
func (m sipMessage) response(status, tag, sdp string, headers ...string) []byte {
	lines := []string{"SIP/2.0 " + status}
	for _, line := range m.headers {
		name, _, _ := strings.Cut(line, ":")
		if slices.Contains(copiedNames, strings.ToLower(strings.TrimSpace(name))) {
			lines = append(lines, line)
		}
	}
	to := m.header("To")
	if tag != "" && !strings.Contains(to, ";tag=") {
		to += ";tag=" + tag
	}
	lines = append(append(lines, "To: "+to), headers...)
	if sdp != "" {
		lines = append(lines, "Content-Type: application/sdp")
	}
	lines = append(lines, fmt.Sprintf("Content-Length: %d", len(sdp)))
	return []byte(strings.Join(lines, "\r\n") + "\r\n\r\n" + sdp)
}
