package sip_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/peertest"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/siptest"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

// callee is a user agent that accepts calls. The called number selects how it handles a call.
type callee struct {
	*sip.UserAgent
	t     *testing.T
	mu    sync.Mutex
	calls map[string]*leg // by Call-ID
	seen  map[string]*sip.Arrival
	took  atomic.Int32
}

func newCallee(t *testing.T, change ...func(*sip.Config)) *callee {
	t.Helper()
	d := &callee{t: t, calls: map[string]*leg{}, seen: map[string]*sip.Arrival{}}
	d.UserAgent = newAgent(t, append([]func(*sip.Config){func(cfg *sip.Config) { cfg.Arrive = d.arrive }}, change...)...)
	return d
}

func (d *callee) arrive(a *sip.Arrival) {
	d.mu.Lock()
	d.seen[a.CallID] = a
	d.mu.Unlock()
	switch a.To {
	case "busy":
		a.Refuse(callstate.UserBusy)
		return
	case "nobody":
		return
	}
	l := &leg{t: d.t, id: a.CallID, change: make(chan struct{})}
	dialog, err := a.Take(sip.Trunk{}, l.observer())
	if err != nil {
		d.t.Errorf("take: %v", err)
		return
	}
	l.Dialog = dialog
	d.took.Add(1)
	d.mu.Lock()
	d.calls[a.CallID] = l
	d.mu.Unlock()
	if err := dialog.Ring(); err != nil {
		d.t.Errorf("ring: %v", err)
	}
	if a.To != "rings" {
		for range 2 {
			if err := dialog.Answer(context.Background(), []byte(answer)); err != nil && a.To != "races" {
				d.t.Errorf(`answer: a.To = %q, want "races"`, a.To)
			} else if err != nil && !errors.Is(err, sip.ErrEnded) {
				d.t.Errorf("answer: Answer = %v, want %v", err, sip.ErrEnded)
			}
		}
	}
}

func (d *callee) of(callID string) (l *leg) {
	d.t.Helper()
	testkit.Until(d.t, "the call comes in", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		l = d.calls[callID]
		return l != nil
	})
	return l
}

func (d *callee) arrival(callID string) *sip.Arrival {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen[callID]
}

func (d *callee) fixture(protocol string) *fixture {
	d.t.Helper()
	return &fixture{
		t: d.t, agent: newAgent(d.t),
		trunk: sip.Trunk{Name: "desk", Host: "127.0.0.1", Port: d.Port(protocol), Transport: protocol},
	}
}

func to(number string) func(*sip.Invite, *leg) {
	return func(o *sip.Invite, _ *leg) { o.To = number }
}

func TestArrival_EitherSideCanHangUpAfterTheAnswer(t *testing.T) {
	forEachTransport(t, func(t *testing.T, protocol string) {
		d := newCallee(t)
		r := d.fixture(protocol)
		l := r.dial("", to("talks"))
		l.waitForCallback("answered", 1)
		came := d.of(l.id)
		switch a := d.arrival(l.id); {
		case a.From != "+15005550006":
			t.Errorf(`a.From = %v, want "+15005550006"`, a.From)
		case a.To != "talks":
			t.Errorf(`a.To = %v, want "talks"`, a.To)
		case string(a.Offer) != offer:
			t.Errorf("string(a.Offer) = %v, want %v", string(a.Offer), offer)
		case l.answer != answer:
			t.Errorf("l.answer = %v, want %v", l.answer, answer)
		}
		l.hangUp(callstate.NormalClearing)
		came.ends(callstate.NormalClearing, false)
		other := r.dial("", to("talks"))
		other.waitForCallback("answered", 1)
		d.of(other.id).hangUp(callstate.MaxDuration)
		d.of(other.id).ends(callstate.MaxDuration, true)
		other.ends(callstate.NormalClearing, false, "taken", "rang", "answered")
	})
}

func TestArrival_CallerReceivesTheCauseOfTheRefusal(t *testing.T) {
	t.Parallel()
	d := newCallee(t)
	r := d.fixture(transport.UDP)
	r.dial("", to("busy")).ends(callstate.UserBusy, false)
	r.dial("", to("nobody")).ends(callstate.CallRejected, false)
	rings := r.dial("", to("rings"))
	rings.waitForCallback("rang", 1)
	d.of(rings.id).hangUp(callstate.UnallocatedNumber)
	d.of(rings.id).ends(callstate.UnallocatedNumber, true)
	rings.ends(callstate.UnallocatedNumber, false, "taken", "rang")
	if d.Live() != 0 {
		t.Errorf("live legs = %d, want 0", d.Live())
	}
}

func TestArrival_CallEndsIfTheCallerCancels(t *testing.T) {
	forEachTransport(t, func(t *testing.T, protocol string) {
		d := newCallee(t)
		r := d.fixture(protocol)
		l := r.dial("", to("rings"))
		l.waitForCallback("rang", 1)
		l.hangUp(callstate.NormalClearing)
		l.ends(callstate.OriginatorCancel, true)
		d.of(l.id).ends(callstate.OriginatorCancel, false)
		if err := d.of(l.id).Answer(t.Context(), []byte(answer)); !errors.Is(err, sip.ErrEnded) {
			t.Errorf("answer after the end: %v", err)
		}
		// The caller cancels while the callee answers. The CANCEL or the 200 can arrive first.
		for range 20 {
			both := r.dial("", to("races"))
			go both.hangUp(callstate.NormalClearing)
			both.waitForCallback("ended", 1)
		}
		testkit.Until(t, "no leg lives", func() bool { return d.Live() == 0 && r.agent.Live() == 0 })
	})
}

func TestArrival_WithheldCallerIDIsEmpty(t *testing.T) {
	t.Parallel()
	d := newCallee(t)
	r := d.fixture(transport.UDP)
	l := r.dial("", to("busy"), func(o *sip.Invite, _ *leg) { o.From = "" })
	l.ends(callstate.UserBusy, false)
	r.trunk.CallerID, r.trunk.Username = sip.Asserted, "account"
	asserted := r.dial("", to("busy"))
	asserted.ends(callstate.UserBusy, false)
	if withheld, identity := d.arrival(l.id).From, d.arrival(asserted.id).From; withheld != "" {
		t.Errorf("withheld = %q, want it empty", withheld)
	} else if identity != "+15005550006" {
		t.Errorf(`asserted identity = %q, want "+15005550006"`, identity)
	}
}

func TestArrival_IsRefusedAboveTheRateLimit(t *testing.T) {
	t.Parallel()
	d := newCallee(t, func(cfg *sip.Config) { cfg.ArrivalsPerSecond = 3 })
	r := d.fixture(transport.UDP)
	refused, begun := 0, time.Now()
	for range 12 {
		l := r.dial("", to("busy"))
		l.waitForCallback("ended", 1)
		if l.end.Cause == callstate.SwitchCongestion && l.end.Status == 503 {
			refused++
		}
	}
	if took := time.Since(begun); refused < 6-int(3*took.Seconds()) {
		t.Errorf("%d of 12 calls within %s were refused, want some", refused, took)
	}
}

func TestArrival_IsRefusedDuringTheDrain(t *testing.T) {
	t.Parallel()
	drained := newCallee(t)
	if err := drained.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	end := drained.fixture(transport.UDP).dial("", to("talks")).ends(callstate.SwitchCongestion, false)
	if !end.OtherTrunkAllowed {
		t.Errorf("end of a call during the drain = %+v", end)
	}
}

func TestArrival_GetsNoResponseIfAdmitReturnsFalse(t *testing.T) {
	t.Parallel()
	closed := newCallee(t, func(cfg *sip.Config) { cfg.Admit = func(netip.Addr) bool { return false } })
	refusedCall := closed.fixture(transport.UDP).dial("", to("talks"),
		func(o *sip.Invite, _ *leg) { o.FirstResponse = 200 * time.Millisecond })
	refusedCall.ends(callstate.RecoveryOnTimerExpire, true)
	if closed.took.Load() != 0 {
		t.Errorf("a call that Admit refused came in: closed.took = %v, want 0", closed.took.Load())
	} else if got := closed.arrival(refusedCall.id); got != nil {
		t.Errorf("a call that Admit refused came in: closed.arrival(refused.id) = %v, want nil", got)
	}
}

func TestArrival_CallFromSippIsAnsweredCanceledOrRefused(t *testing.T) {
	t.Parallel()
	peertest.Installed(t, "sipp")
	d := newCallee(t)
	for _, protocol := range transports {
		mode := map[string]string{transport.UDP: "u1", transport.TCP: "t1"}[protocol]
		for name, scenario := range map[string]struct{ number, text string }{
			"answered": {number: "talks", text: ""},
			"canceled": {number: "rings", text: calling + ringing + canceling},
			"refused":  {number: "busy", text: calling + `<recv response="486"/>` + newRefusalAck},
			"no offer": {number: "talks", text: lateOffer},
		} {
			t.Run(protocol+" "+name, func(t *testing.T) {
				dir := t.TempDir()
				args := []string{"-sn", "uac"}
				if scenario.text != "" {
					file := filepath.Join(dir, "near.xml")
					text := `<?xml version="1.0" encoding="ISO-8859-1" ?><scenario name="x">` + scenario.text + "</scenario>"
					if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
					args = []string{"-sf", file}
				}
				args = append(args, "-i", "127.0.0.1", "-p", strconv.Itoa(peertest.Port(t)), "-mp", strconv.Itoa(peertest.Port(t)), "-t", mode, "-m", "5", "-r", "20", "-d", "50",
					"-s", scenario.number, "-nostdin", "-timeout", "20s", "-timeout_error",
					fmt.Sprintf("127.0.0.1:%d", d.Port(protocol)))
				peertest.Start(t, dir, "sipp", args...).Ends(t)
				testkit.Until(t, "no leg lives", func() bool { return d.Live() == 0 })
			})
		}
	}
}

const (
	calling = `<send><![CDATA[

INVITE sip:[service]@[remote_ip]:[remote_port] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: <sip:sipp@[local_ip]:[local_port]>;tag=[pid]a[call_number]
To: <sip:[service]@[remote_ip]:[remote_port]>
Call-ID: [call_id]
CSeq: 1 INVITE
Contact: <sip:sipp@[local_ip]:[local_port];transport=[transport]>
Max-Forwards: 70
Content-Length: 0

]]></send><recv response="100" optional="true"/>`
	ringing   = `<recv response="180"/>`
	canceling = `<send><![CDATA[

CANCEL sip:[service]@[remote_ip]:[remote_port] SIP/2.0
[last_Via:]
From: <sip:sipp@[local_ip]:[local_port]>;tag=[pid]a[call_number]
To: <sip:[service]@[remote_ip]:[remote_port]>
Call-ID: [call_id]
CSeq: 1 CANCEL
Max-Forwards: 70
Content-Length: 0

]]></send><recv response="200"/><recv response="487"/>` + newRefusalAck
	newRefusalAck = `<send><![CDATA[

ACK sip:[service]@[remote_ip]:[remote_port] SIP/2.0
[last_Via:]
From: <sip:sipp@[local_ip]:[local_port]>;tag=[pid]a[call_number]
[last_To:]
Call-ID: [call_id]
CSeq: 1 ACK
Max-Forwards: 70
Content-Length: 0

]]></send>`
	lateOffer = calling + ringing + `<recv response="200" rrs="true"/><send><![CDATA[

ACK [next_url] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: <sip:sipp@[local_ip]:[local_port]>;tag=[pid]a[call_number]
[last_To:]
Call-ID: [call_id]
CSeq: 1 ACK
[routes]
Max-Forwards: 70
Content-Type: application/sdp
Content-Length: [len]

v=0
o=user1 1 1 IN IP4 [local_ip]
s=-
c=IN IP4 [local_ip]
t=0 0
m=audio [media_port] RTP/AVP 0
]]></send><pause/><send><![CDATA[

BYE [next_url] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: <sip:sipp@[local_ip]:[local_port]>;tag=[pid]a[call_number]
[last_To:]
Call-ID: [call_id]
CSeq: 2 BYE
[routes]
Max-Forwards: 70
Content-Length: 0

]]></send><recv response="200"/>`
)

func TestDrain_KamailioSendsNewCallsToAnotherUserAgent(t *testing.T) {
	t.Parallel()
	peertest.Installed(t, "sipp")
	one, other := newCallee(t), newCallee(t)
	port := siptest.Kamailio(t, siptest.Dispatching,
		fmt.Sprintf("1 sip:127.0.0.1:%d", one.Port(transport.UDP)),
		fmt.Sprintf("1 sip:127.0.0.1:%d", other.Port(transport.UDP)))
	dir := t.TempDir()
	file := filepath.Join(dir, "near.xml")
	if err := os.WriteFile(file, []byte(`<?xml version="1.0" encoding="ISO-8859-1" ?><scenario name="x">`+lateOffer+"</scenario>"), 0o600); err != nil {
		t.Fatal(err)
	}
	caller := peertest.Start(t, dir, "sipp", "-sf", file, "-i", "127.0.0.1", "-p", strconv.Itoa(peertest.Port(t)), "-mp", strconv.Itoa(peertest.Port(t)), "-m", "40", "-r", "20", "-d", "600",
		"-s", "talks", "-nostdin", "-timeout", "60s", "-timeout_error", "-trace_err", "-error_file", filepath.Join(dir, "errors"), fmt.Sprintf("127.0.0.1:%d", port))
	defer func() {
		if errorLog, err := os.ReadFile(filepath.Join(dir, "errors")); err == nil && t.Failed() {
			t.Logf("%s", errorLog)
		}
	}()
	testkit.Until(t, "calls live on the one", func() bool { return one.Live() >= 5 })
	lives := one.took.Load()
	ctx, done := context.WithTimeout(t.Context(), siptest.Timeout)
	defer done()
	if err := one.Drain(ctx); err != nil {
		t.Errorf("drain: %v", err)
	}
	caller.Ends(t)
	switch {
	case one.took.Load()+other.took.Load() != 40:
		t.Errorf("one.took.Load() + other.took.Load() = %v, want 40", one.took.Load()+other.took.Load())
	case other.took.Load() < 20:
		t.Errorf("other.took.Load() = %v, want at least 20", other.took.Load())
	case lives == 0:
		t.Error("lives = 0, want another value")
	}
}

func TestAdmit_PeerOfACallMayOpenANewConnection(t *testing.T) {
	r := newFixture(t, transport.TCP, func(cfg *sip.Config) { cfg.Admit = nil; cfg.Linger = 50 * time.Millisecond })
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(r.agent.Port(transport.TCP)))
	heard := func() bool { // a connection from an unknown address is closed without a response
		conn, err := net.Dial("tcp", at)
		if err != nil {
			return false
		}
		defer func() { _ = conn.Close() }()
		own := conn.LocalAddr().String()
		const options = "OPTIONS sip:x@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/TCP %s;branch=z9hG4bK%s\r\n" +
			"From: <sip:a@b>;tag=1\r\nTo: <sip:x@b>\r\nCall-ID: %[1]s\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
		_, _ = fmt.Fprintf(conn, options, own, transport.Token())
		_ = conn.SetReadDeadline(time.Now().Add(siptest.Timeout))
		_, err = conn.Read(make([]byte, 1))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the connection was neither closed nor answered")
		}
		return err == nil
	}
	if heard() {
		t.Error("a message from an unknown address was accepted")
	}
	r.far.On("01", func(c *siptest.Call) { c.Answer(answer); c.Hangup() })
	l := r.dial("01")
	l.waitForCallback("answered", 1)
	if !heard() {
		t.Error("a message from the peer of a call was not accepted")
	}
	l.hangUp(callstate.NormalClearing)
	testkit.Until(t, "messages from the former peer are ignored", func() bool { return !heard() })
}
