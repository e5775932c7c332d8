package sip_test

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/peertest"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

// shows returns a certificate for the host, and a trust anchor with which a client accepts only
// this certificate.
func shows(t *testing.T, host string) (pair *tls.Certificate, trusted string) {
	t.Helper()
	key, cert, err := peertest.Certificate(host)
	if err != nil {
		t.Fatal(err)
	}
	made, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return &made, string(cert)
}

// phone is a baresip (a SIP phone program) that answers all calls.
type phone struct {
	*peertest.Phone
	t    *testing.T
	cert string
}

func newPhone(t *testing.T) *phone {
	t.Helper()
	dir, port := t.TempDir(), peertest.Port(t)
	key, cert, err := peertest.Certificate("127.0.0.1")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "cert.pem"), append(key, cert...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("audio_source aubridge,x\nrtp_ports 30000-32000\nsip_certificate %s\n", filepath.Join(dir, "cert.pem"))
	account := fmt.Sprintf("<sip:bob@127.0.0.1:%d;transport=tls>;regint=0;answermode=auto", port+1)
	return &phone{Phone: peertest.NewPhone(t, dir, port, config, account), t: t, cert: string(cert)}
}

func (p *phone) rig(change ...func(*sip.Trunk)) *fixture {
	p.t.Helper()
	pair, _ := shows(p.t, "127.0.0.1")
	trunk := sip.Trunk{Name: "phone", Host: "127.0.0.1", Port: p.Port + 1, Transport: transport.TLS, CA: p.cert}
	for _, one := range change {
		one(&trunk)
	}
	return &fixture{t: p.t, trunk: trunk, agent: newAgent(p.t, func(cfg *sip.Config) { cfg.TLS, cfg.Certificate = loopback, pair })}
}

func bob(o *sip.Invite, _ *leg) { o.To = "bob" }

// The call must fail before any SIP message if the phone's certificate is not trusted.
func TestBaresip_AnswersOverTLS(t *testing.T) {
	t.Parallel()
	p := newPhone(t)
	r := p.rig()
	l := r.dial("01", bob)
	l.waitForCallback("answered", 1)
	if !strings.Contains(l.answer, "m=audio") {
		t.Errorf("answer = %q", l.answer)
	}
	p.Do(t, "hold")
	l.waitForCallback("offered", 1)
	p.Do(t, "resume")
	l.waitForCallback("offered", 2)
	p.Do(t, "hangup")
	l.ends(callstate.NormalClearing, false)

	ours := r.dial("01", bob)
	ours.waitForCallback("answered", 1)
	ours.hangUp(callstate.NormalClearing)
	ours.ends(callstate.NormalClearing, true)

	_, other := shows(t, "127.0.0.1")
	for name, ca := range map[string]string{"another CA": other, "the system's": ""} {
		wary := p.rig(func(tr *sip.Trunk) { tr.CA = ca })
		_, err := wary.agent.Invite(t.Context(), wary.trunk, sip.Invite{CallID: "wary", To: "bob", Body: []byte(offer)}, sip.Observer{})
		if !transport.IsNotSent(err) {
			t.Errorf("%s: line.Refused(err) = false, want true", name)
		} else if !strings.Contains(err.Error(), "certificate") {
			t.Errorf(`%s: err = %q, want it to contain "certificate"`, name, err.Error())
		}
	}
}

func TestBaresip_CallsOverTLS(t *testing.T) {
	t.Parallel()
	p := newPhone(t)
	pair, _ := shows(t, "127.0.0.1")
	d := newCallee(t, func(cfg *sip.Config) { cfg.TLS, cfg.Certificate = loopback, pair })
	came := func() *leg {
		p.Do(t, "dial", fmt.Sprintf("sip:talks@127.0.0.1:%d;transport=tls", d.Port(transport.TLS)))
		var l *leg
		testkit.Until(t, "the phone calls", func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			for id, one := range d.calls {
				l = one
				delete(d.calls, id)
			}
			return l != nil
		})
		return l
	}
	first := came()
	p.Do(t, "hold")
	first.waitForCallback("offered", 1)
	p.Do(t, "resume")
	first.waitForCallback("offered", 2)
	p.Do(t, "hangup")
	first.ends(callstate.NormalClearing, false)
	second := came()
	second.hangUp(callstate.NormalClearing)
	second.ends(callstate.NormalClearing, true)
}
