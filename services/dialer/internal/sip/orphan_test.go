package sip_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	sipmsg "github.com/emiago/sipgo/sip"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/peertest"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/siptest"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

func TestReap_EndsRingingAndAnsweredCalls(t *testing.T) {
	forEachTransport(t, func(t *testing.T, protocol string) {
		// The test reserves the port, so that no other test uses it between the first and the second user
		// agent.
		at := fmt.Sprintf("127.0.0.1:%d", peertest.Port(t))
		r := newFixture(t, protocol, func(cfg *sip.Config) { cfg.UDP, cfg.TCP = at, at })
		r.far.On("01", func(c *siptest.Call) {
			c.Respond(180, "")
			if protocol == transport.UDP {
				c.Canceled()
			}
		})
		r.far.On("02", func(c *siptest.Call) {
			c.Respond(180, "")
			c.Respond(200, answer)
			// The closed user agent can have sent more requests after it stored its state. So the next user
			// agent must increase the CSeq by 100 (crashCSeqGap).
			if bye := c.Hangup(); bye.CSeq() == nil || bye.CSeq().SeqNo <= 100 {
				t.Errorf("BYE = %s", bye)
			}
		})
		rings, talks := r.dial("01"), r.dial("02")
		rings.waitForCallback("rang", 1)
		talks.waitForCallback("answered", 1)
		rings.mu.Lock()
		ringing := rings.encodeState
		rings.mu.Unlock()
		talks.mu.Lock()
		talking := talks.encodeState
		talks.mu.Unlock()
		if len(ringing) > 900 {
			t.Errorf("length of ringing = %d, want at most 900", len(ringing))
		} else if len(talking) > 900 {
			t.Errorf("length of talking = %d, want at most 900", len(talking))
		}
		r.agent.Close()
		next := newAgent(t, func(cfg *sip.Config) { cfg.UDP, cfg.TCP = at, at })
		ctx, done := context.WithTimeout(t.Context(), siptest.Timeout)
		defer done()
		states := map[string][]byte{"talking": talking}
		// The CANCEL of a ringing call is tested only over UDP. Over TCP, the far end would send its
		// response over the connection of the INVITE, which ended with the first user agent.
		if protocol == transport.UDP {
			states["ringing"] = ringing
		}
		for name, state := range states {
			if err := next.Reap(ctx, r.trunk, state); err != nil {
				t.Errorf("Reap of the %s call: %v", name, err)
			}
		}
		if n := r.countRequests(talks, sipmsg.BYE); n != 1 {
			t.Errorf("BYEs = %d", n)
		}
		if err := next.Reap(ctx, r.trunk, talking); err != nil {
			t.Errorf("reap again: %v", err)
		}
		if err := next.Reap(ctx, r.trunk, nil); err != nil {
			t.Errorf("reap a call that was not answered: %v", err)
		}
		if err := next.Reap(ctx, r.trunk, []byte(`{"v":1}`)); err == nil {
			t.Error("Reap of an invalid state = nil, want an error")
		}
	})
}

// The call was answered after the teardown state was stored, so the state describes a ringing call.
// Reap hangs up when the far end retransmits the 200.
func TestReap_HangsUpACallThatWasAnsweredAfterItsStateWasStored(t *testing.T) {
	at := fmt.Sprintf("127.0.0.1:%d", peertest.Port(t))
	r := newFixture(t, transport.UDP, func(cfg *sip.Config) { cfg.UDP = at })
	dead, answered := make(chan struct{}), make(chan struct{})
	r.far.On("01", func(c *siptest.Call) {
		c.Respond(180, "")
		<-dead
		c.Respond(200, answer) // no process receives this 200
		close(answered)
		c.Answer(answer)
		c.Hangup()
	})
	l := r.dial("01")
	l.waitForCallback("rang", 1)
	l.mu.Lock()
	state := l.encodeState
	l.mu.Unlock()
	r.agent.Close()
	close(dead)
	<-answered
	next := newAgent(t, func(cfg *sip.Config) { cfg.UDP = at })
	ctx, done := context.WithTimeout(t.Context(), siptest.Timeout)
	defer done()
	if err := next.Reap(ctx, r.trunk, state); err != nil {
		t.Errorf("reap: %v", err)
	}
	testkit.Until(t, "the answered call is hung up", func() bool { return r.countRequests(l, sipmsg.BYE) == 1 })
}

// A new process at the same address receives the 200 before Reap is called. It must hang up
// immediately, because a far end can wait up to 4 s before it retransmits the 200 (RFC 3261 section
// 13.3.1.4).
func TestReap_HangsUpACallWhose200ArrivedBeforeReapWasCalled(t *testing.T) {
	at := fmt.Sprintf("127.0.0.1:%d", peertest.Port(t))
	r := newFixture(t, transport.UDP, func(cfg *sip.Config) { cfg.UDP = at })
	replaced, answered := make(chan struct{}), make(chan struct{})
	r.far.On("01", func(c *siptest.Call) {
		c.Respond(180, "")
		<-replaced
		c.Respond(200, answer)        // the far end sends the 200 only once
		c.Request(sipmsg.OPTIONS, "") // the OPTIONS is answered after the new user agent has received the 200
		close(answered)
		c.Next(sipmsg.ACK)
		c.Hangup()
	})
	l := r.dial("01")
	l.waitForCallback("rang", 1)
	l.mu.Lock()
	state := l.encodeState
	l.mu.Unlock()
	r.agent.Close()
	next := newAgent(t, func(cfg *sip.Config) { cfg.UDP = at })
	close(replaced)
	<-answered
	ctx, done := context.WithTimeout(t.Context(), siptest.Timeout)
	defer done()
	if err := next.Reap(ctx, r.trunk, state); err != nil {
		t.Errorf("reap: %v", err)
	}
	testkit.Until(t, "the answered call is hung up", func() bool { return r.countRequests(l, sipmsg.BYE) == 1 })
}

// The final response to the INVITE goes to the address of the first user agent. So Reap of the
// second user agent must not wait for the final response.
func TestReap_CancelsACallFromADifferentAddressThanItsINVITE(t *testing.T) {
	r := newFixture(t, transport.UDP)
	r.far.On("01", func(c *siptest.Call) {
		c.Respond(180, "")
		c.Canceled()
	})
	l := r.dial("01")
	l.waitForCallback("rang", 1)
	l.mu.Lock()
	state := l.encodeState
	l.mu.Unlock()
	r.agent.Close()
	ctx, done := context.WithTimeout(t.Context(), siptest.Timeout)
	defer done()
	if err := newAgent(t).Reap(ctx, r.trunk, state); err != nil {
		t.Errorf("Reap: %v", err)
	}
}

func TestAdmit_UnknownSourcesGetNoResponse(t *testing.T) {
	r := newFixture(t, transport.UDP)
	closed := newAgent(t, func(cfg *sip.Config) { cfg.Admit = func(netip.Addr) bool { return false } })
	conn, err := net.ListenPacket("udp4", loopback)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	own := conn.LocalAddr().String()
	options := "OPTIONS sip:x@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP " + own + ";branch=z9hG4bKx\r\nFrom: <sip:a@b>;tag=1\r\nTo: <sip:x@b>\r\nCall-ID: c\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
	send := func(a *sip.UserAgent, text string) {
		to := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: a.Port(transport.UDP)}
		if _, err := conn.WriteTo([]byte(text), to); err != nil {
			t.Fatal(err)
		}
	}
	heard := func(timeout time.Duration) string {
		buf := make([]byte, 4096)
		_ = conn.SetReadDeadline(time.Now().Add(timeout))
		n, _, err := conn.ReadFrom(buf)
		if err != nil {
			return ""
		}
		return string(buf[:n])
	}
	send(closed, options)
	if response := heard(200 * time.Millisecond); response != "" {
		t.Errorf("response to an unknown source = %q, want none", response)
	}
	for _, garbage := range garbage() {
		send(r.agent, garbage)
	}
	for heard(50*time.Millisecond) != "" {
	}
	send(r.agent, options)
	response := heard(siptest.Timeout)
	for strings.HasPrefix(response, "SIP/2.0 4") {
		response = heard(siptest.Timeout)
	}
	if !strings.HasPrefix(response, "SIP/2.0 200") {
		t.Errorf("response to OPTIONS after invalid messages = %q", response)
	}
	// Messages of a call of this process must be accepted from any address.
	r.far.On("01", func(c *siptest.Call) { c.Answer(answer); c.Request(sipmsg.BYE, "") })
	r.agent = closed
	r.dial("01").ends(callstate.NormalClearing, false)
}

func garbage() []string {
	via := "Via: SIP/2.0/UDP 127.0.0.1:9;branch=z9hG4bKg\r\n"
	all := []string{
		"", "\r\n\r\n", "\x00\x00\x00", "INVITE", "INVITE  SIP/2.0\r\n\r\n", "SIP/2.0 200\r\n\r\n", "SIP/2.0 999999999999 OK\r\n" + via + "\r\n",
		"INVITE sip:x SIP/2.0\r\n\r\n", "INVITE sip:x SIP/2.0\r\n" + via + "\r\n", "BYE sip:x SIP/2.0\r\n" + via + "CSeq: 1 BYE\r\n\r\n",
		"BYE sip:x SIP/2.0\r\n" + via + "CSeq: 1 INVITE\r\nTo: <sip:a@b>;tag=1\r\nFrom: <sip:a@b>\r\nCall-ID: z\r\n\r\n",
		"ACK sip:x SIP/2.0\r\n" + via + "CSeq: 1 ACK\r\nTo: <sip:a@b>;tag=1\r\nFrom: <sip:a@b>\r\nCall-ID: z\r\n\r\n",
		"CANCEL sip:x SIP/2.0\r\n" + via + "CSeq: 1 CANCEL\r\nTo: <sip:a@b>\r\nFrom: <sip:a@b>;tag=2\r\nCall-ID: z\r\n\r\n",
		"SIP/2.0 200 OK\r\n" + via + "CSeq: 1 INVITE\r\nTo: <sip:a@b>\r\nFrom: <sip:a@b>;tag=x\r\nCall-ID: z\r\n\r\n",
		"SIP/2.0 200 OK\r\n" + via + "CSeq: 4294967296 INVITE\r\n\r\n", "OPTIONS sip:[::1 SIP/2.0\r\n" + via + "\r\n", "X" + string(make([]byte, 30000)),
		"INVITE sip:x SIP/2.0\r\n" + via + "Content-Length: -1\r\n\r\nabc", "INVITE sip:x SIP/2.0\r\nVia: \r\n\r\n", "\xff\xfe\xfd\r\n\r\n",
	}
	for i := range 200 { // add truncated and changed requests
		whole := []byte("INVITE sip:+1@127.0.0.1 SIP/2.0\r\n" + via + "From: \"A\" <sip:a@b>;tag=1\r\nTo: <sip:x@b>\r\nCall-ID: cut\r\nCSeq: 1 INVITE\r\nContact: <sip:a@127.0.0.1:9>\r\nRoute: <sip:r;lr>\r\nContent-Length: 3\r\n\r\nabc")
		at := i * len(whole) / 200
		bent := append([]byte{}, whole...)
		bent[at] = byte(i)
		all = append(all, string(whole[:at]), string(bent))
	}
	return all
}

// A dead process dialed a call. The 200 of this call arrives while the next process starts.
func TestOrphan_200ThatArrivesWhileTheUserAgentStartsIsHandled(t *testing.T) {
	t.Parallel()
	address := fmt.Sprintf("127.0.0.1:%d", peertest.Port(t))
	peer, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = peer.Close() }()
	stop, sender := make(chan struct{}), sync.WaitGroup{}
	sender.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			text := "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP " + address + ";branch=z9hG4bK" + strconv.Itoa(n) + "\r\n" +
				"From: <sip:a@127.0.0.1>;tag=1\r\nTo: <sip:b@127.0.0.1>;tag=2\r\nCall-ID: start-" + strconv.Itoa(n) + "\r\n" +
				"CSeq: 1 INVITE\r\nContact: <sip:b@" + peer.LocalAddr().String() + ">\r\nContent-Length: 0\r\n\r\n"
			_, _ = peer.Write([]byte(text)) // between two user agents, no process listens, so Write can fail
		}
	})
	for range 10 {
		agent, err := sip.New(sip.Config{UDP: address, Admit: func(netip.Addr) bool { return true },
			Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Error(err)
			break
		}
		agent.Close()
	}
	close(stop)
	sender.Wait()
}
