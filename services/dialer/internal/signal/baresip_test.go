package signal_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ringfence.dev/services/dialer/internal/call"
	"ringfence.dev/services/dialer/internal/signal"
	"ringfence.dev/services/dialer/internal/signal/line"
	"ringfence.dev/services/dialer/internal/signal/signaltest"
)

// certified is a certificate of the loopback's, signed by itself: the key and certificate in PEM.
func certified(t *testing.T) (key, cert []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "127.0.0.1"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})
}

// phone is a baresip that picks up by itself, and that can be told what to do.
type phone struct {
	t    *testing.T
	port int
	ctrl net.Conn
	cert string
}

func newPhone(t *testing.T) *phone {
	t.Helper()
	signaltest.Installed(t, "baresip")
	const modules = "/usr/lib/baresip/modules"
	if _, err := os.Stat(modules); err != nil {
		t.Skip("SKIPPED: baresip's modules are not where Debian puts them")
	}
	dir, port, ctrl := t.TempDir(), signaltest.FreePort(t), signaltest.FreePort(t)
	key, cert := certified(t)
	config := fmt.Sprintf(`sip_listen 127.0.0.1:%d
sip_certificate %s
audio_player aubridge,x
audio_source aubridge,x
audio_alert aubridge,y
net_interface 127.0.0.1
rtp_ports 30000-32000
module_path %s
module g711.so
module aubridge.so
module_tmp account.so
module_app menu.so
module_app ctrl_tcp.so
ctrl_tcp_listen 127.0.0.1:%d
`, port, filepath.Join(dir, "cert.pem"), modules, ctrl)
	for name, text := range map[string]string{
		"config": config, "contacts": "", "cert.pem": string(key) + string(cert),
		"accounts": fmt.Sprintf("<sip:bob@127.0.0.1:%d;transport=tls>;regint=0;answermode=auto\n", port+1),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	peer := signaltest.Start(t, dir, "baresip", "-f", dir, "-v")
	peer.Listens(t.Context(), "tcp", ctrl)
	peer.Listens(t.Context(), "tcp", port+1)
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ctrl))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &phone{t: t, port: port + 1, ctrl: conn, cert: string(cert)}
}

// do has the phone do something: its control takes netstrings of JSON.
func (p *phone) do(command string, params ...string) {
	p.t.Helper()
	text := fmt.Sprintf(`{"command":%q,"params":%q}`, command, strings.Join(params, " "))
	if _, err := fmt.Fprintf(p.ctrl, "%d:%s,", len(text), text); err != nil {
		p.t.Fatal(err)
	}
}

func (p *phone) rig(change ...func(*signal.Trunk)) *rig {
	p.t.Helper()
	key, cert := certified(p.t)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		p.t.Fatal(err)
	}
	trunk := signal.Trunk{Name: "phone", Host: "127.0.0.1", Port: p.port, Transport: line.TLS, CA: p.cert}
	for _, one := range change {
		one(&trunk)
	}
	return &rig{t: p.t, trunk: trunk, agent: newAgent(p.t, func(cfg *signal.Config) { cfg.TLS, cfg.Certificate = loopback, &pair })}
}

func bob(o *signal.Invite, _ *leg) { o.To = "bob" }

// TestBaresip_TLS: a real phone over TLS holds, resumes and hangs up, or we do; a certificate that nobody vouches for is refused before anything is said.
func TestBaresip_TLS(t *testing.T) {
	t.Parallel()
	p := newPhone(t)
	r := p.rig()
	l := r.dial("01", bob)
	l.until("answered", 1)
	if !strings.Contains(l.answer, "m=audio") {
		t.Errorf("answer = %q", l.answer)
	}
	p.do("hold")
	l.until("offered", 1)
	p.do("resume")
	l.until("offered", 2)
	p.do("hangup")
	l.ends(call.NormalClearing, false)

	ours := r.dial("01", bob)
	ours.until("answered", 1)
	ours.hangUp(call.NormalClearing)
	ours.ends(call.NormalClearing, true)

	_, other := certified(t)
	for name, ca := range map[string]string{"another CA": string(other), "the system's": ""} {
		wary := p.rig(func(tr *signal.Trunk) { tr.CA = ca })
		_, err := wary.agent.Invite(t.Context(), wary.trunk, signal.Invite{CallID: "wary", To: "bob", Body: []byte(offer)}, signal.Observer{})
		if !line.Refused(err) || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: %v, want a certificate that is not trusted", name, err)
		}
	}
}

// TestBaresip_CallsUs over TLS: it is answered, holds and resumes, and either side hangs up.
func TestBaresip_CallsUs(t *testing.T) {
	t.Parallel()
	p := newPhone(t)
	key, cert := certified(t)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	d := newDesk(t, func(cfg *signal.Config) { cfg.TLS, cfg.Certificate = loopback, &pair })
	came := func() *leg {
		p.do("dial", fmt.Sprintf("sip:talks@127.0.0.1:%d;transport=tls", d.Port(line.TLS)))
		var l *leg
		eventually(t, "the phone calls", func() bool {
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
	p.do("hold")
	first.until("offered", 1)
	p.do("resume")
	first.until("offered", 2)
	p.do("hangup")
	first.ends(call.NormalClearing, false)
	second := came()
	second.hangUp(call.NormalClearing)
	second.ends(call.NormalClearing, true)
}
