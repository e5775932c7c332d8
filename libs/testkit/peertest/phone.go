package peertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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
)

// Phone is a baresip process that a test controls.
type Phone struct {
	// Port is the port for SIP over UDP. The next higher port is for TLS.
	Port int
	// Dir is the folder with the files of the phone.
	Dir  string
	ctrl net.Conn
}

const baresip = `sip_listen 127.0.0.1:%d
audio_player aubridge,x
audio_alert aubridge,y
net_interface 127.0.0.1
module_path %s
module g711.so
module aubridge.so
module_tmp account.so
module_app menu.so
module_app ctrl_tcp.so
ctrl_tcp_listen 127.0.0.1:%d
`

// NewPhone starts a phone that runs until the test ends. config is added to the common settings:
// the audio source, the audio ports and the certificate. account is the SIP account of the phone.
func NewPhone(t testing.TB, dir string, port int, config, account string) *Phone {
	t.Helper()
	Installed(t, "baresip")
	p, ctrl := &Phone{Port: port, Dir: dir}, Port(t)
	for name, text := range map[string]string{"config": fmt.Sprintf(baresip, port, modulesOf("baresip"), ctrl) + config, "contacts": "", "accounts": account + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := Start(t, dir, "baresip", "-f", dir, "-v")
	for at, network := range map[int]string{ctrl: "tcp", port: "udp"} {
		if err := program.Listens(network, at); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(config, "sip_certificate") {
		if err := program.Listens("tcp", port+1); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if p.ctrl, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ctrl)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.ctrl.Close() })
	return p
}

// Do sends a command to the control port of the phone. The port uses netstrings of JSON.
func (p *Phone) Do(t testing.TB, command string, params ...string) {
	t.Helper()
	text := fmt.Sprintf(`{"command":%q,"params":%q}`, command, strings.Join(params, " "))
	if _, err := fmt.Fprintf(p.ctrl, "%d:%s,", len(text), text); err != nil {
		t.Fatal(err)
	}
}

// Certificate returns a self-signed certificate for a host, as a key and a certificate in PEM.
func Certificate(host string) (key, cert []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if address := net.ParseIP(host); address != nil {
		template.IPAddresses = []net.IP{address}
	} else {
		template.DNSNames = []string{host}
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	encoded, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), nil
}
