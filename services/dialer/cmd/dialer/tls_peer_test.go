package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/libs/testkit/peertest"
)

// tlsPhone is a baresip (a SIP phone program) that accepts calls only over TLS.
type tlsPhone struct {
	phone       *peertest.Phone
	number      string
	certificate string
	// env contains the environment variables of a dialer that listens over TLS.
	env []string
}

func newTLSPhone(t *testing.T, number string) tlsPhone {
	t.Helper()
	peertest.Installed(t, "baresip")
	files := func(dir string) (keyFile, certFile, certificate string) {
		key, cert, err := peertest.Certificate("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		keyFile, certFile = filepath.Join(dir, "key.pem"), filepath.Join(dir, "cert.pem")
		both := filepath.Join(dir, "both.pem")
		for name, content := range map[string][]byte{keyFile: key, certFile: cert, both: append(key, cert...)} {
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return keyFile, certFile, string(cert)
	}
	key, cert, _ := files(t.TempDir())
	dir, port := t.TempDir(), peertest.Port(t)
	_, _, certificate := files(dir)
	config := fmt.Sprintf("audio_source aubridge,x\nrtp_ports 36000-38000\nsip_certificate %s\nmodule srtp.so\n",
		filepath.Join(dir, "both.pem"))
	account := fmt.Sprintf("<sip:%s@127.0.0.1:%d;transport=tls>;regint=0;answermode=auto;mediaenc=srtp-mand",
		number, port+1)
	return tlsPhone{
		phone: peertest.NewPhone(t, dir, port, config, account), number: number, certificate: certificate,
		env: []string{
			"CARRIER=sip", "SIP_UDP_ADDR=" + freeAddr(t), "SIP_TLS_ADDR=" + freeAddr(t),
			"SIP_TLS_CERT_FILE=" + cert, "SIP_TLS_KEY_FILE=" + key,
		},
	}
}

func (p tlsPhone) settings(t *testing.T) string {
	t.Helper()
	trusted, err := json.Marshal(p.certificate)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`,"transport":"tls","srtp":"required","ca_certificates":%s`, trusted)
}

func TestTrunkCheck_OverTLSNeedsTheCACertificate(t *testing.T) {
	t.Parallel()
	far := newTLSPhone(t, "+14155551801")
	r := newRig(t, "0")
	p := r.dialer(far.env...)
	path := r.addTrunk(p, far.phone.Port+1, `,"transport":"tls"`)
	check := func() (steps []string) {
		status, answer := r.asOperator("POST", path+"/check", "")
		if status != http.StatusOK {
			t.Fatalf("POST check = %d %v, want 200", status, answer)
		}
		for _, each := range answer["steps"].([]any) {
			step := each.(map[string]any)
			steps = append(steps, step["step"].(string)+" "+step["result"].(string))
		}
		return steps
	}
	want := []string{"dns skipped", "transport ok", "tls failed", "options skipped", "digest skipped"}
	if diff := cmp.Diff(want, check()); diff != "" {
		t.Errorf("steps without the certificate (-want +got):\n%s", diff)
	}
	r.patchTrunk(path, "{"+far.settings(t)[1:]+"}")
	want = []string{"dns skipped", "transport ok", "tls ok", "options ok", "digest skipped"}
	if diff := cmp.Diff(want, check()); diff != "" {
		t.Errorf("steps with the certificate (-want +got):\n%s", diff)
	}
}

// keyOfSRTP matches an SRTP key that is not redacted. A redacted key consists of the letter x only.
var keyOfSRTP = regexp.MustCompile(`inline:[A-Za-z0-9+/]*[A-Za-wyz0-9+/]`)

// The trunk's trace begins with the OPTIONS request that the dialer sends before the first call.
func TestTrace_OverTLSShowsPlaintextWithoutSRTPKeys(t *testing.T) {
	t.Parallel()
	far := newTLSPhone(t, "+14155551802")
	r := newRig(t, "0")
	p := r.dialer(far.env...)
	path := r.addTrunk(p, far.phone.Port+1, far.settings(t)+`,"trace":true`)
	r.setAgent(`{"script":{"tone_hz":440,"tone_millis":200,"end_after_millis":400}}`)
	id := r.request(far.number)
	end := last(r.ends(id)).GetCall()
	if got, want := end.GetStatus(), "completed"; got != want {
		t.Errorf("status = %q, want %q", got, want)
	}
	_, trace := r.fetch(path + "/trace?sip_call_id=" + r.attempts(p, id)[0].SIPCallID)
	wantInTrace(t, trace, map[string]bool{
		" sent TLS 127.0.0.1:": true, fmt.Sprintf(" received TLS 127.0.0.1:%d -> ", far.phone.Port+1): true,
		"INVITE sip:" + far.number + "@127.0.0.1": true, "SIP/2.0 200 ": true, "BYE sip:": true, "inline:xxxx": true,
	})
	if got := keyOfSRTP.FindString(trace); got != "" {
		t.Errorf("key of SRTP in the trace = %q, want none", got)
	}
	_, whole := r.fetch(path + "/trace")
	beforeCall, _, _ := strings.Cut(whole, "INVITE sip:")
	wantInTrace(t, beforeCall, map[string]bool{"OPTIONS sip:": true})
}
