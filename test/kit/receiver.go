package kit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Delivery is one received webhook.
type Delivery struct {
	Path       string
	EventID    string
	DeliveryID string
	Type       string
	CallID     string
	Sequence   int
	Header     http.Header
	Body       []byte
	At         time.Time
	// Signature is the value of the header X-Service-Signature.
	Signature string
	// Signed is true if the signature is valid and its time is at most 300 s old.
	Signed bool
}

// ReceiverHost is a host name in the certificate of a Receiver, for senders in containers.
const ReceiverHost = "receiver.test"

// Receiver is an HTTPS endpoint that stores the webhooks that it receives.
type Receiver struct {
	URL string
	// CAFile is the certificate that the sender must trust (SSL_CERT_FILE). KeyFile is the key of
	// this certificate. Receivers in other processes use both files.
	CAFile, KeyFile string

	server  *httptest.Server
	mu      sync.Mutex
	secrets map[string]string
	got     []Delivery
	// OnDelivery is called with each delivery. Set it before the first delivery arrives.
	OnDelivery func(Delivery)
}

// NewReceiver starts a receiver with a new certificate. It writes the certificate into dir.
func NewReceiver(dir string) (*Receiver, error) {
	certPEM, keyPEM, err := selfSigned()
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	r := &Receiver{CAFile: filepath.Join(dir, "receiver-ca.pem"), KeyFile: filepath.Join(dir, "receiver-key.pem"), secrets: map[string]string{}}
	if err := errors.Join(os.WriteFile(r.CAFile, certPEM, 0o644), os.WriteFile(r.KeyFile, keyPEM, 0o600)); err != nil {
		return nil, err
	}
	r.server = httptest.NewUnstartedServer(r)
	r.server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	r.server.Config.ErrorLog = log.New(io.Discard, "", 0) // tests kill senders during the TLS handshake
	r.server.StartTLS()
	r.URL = r.server.URL
	return r, nil
}

// Close stops the endpoint.
func (r *Receiver) Close() { r.server.Close() }

// SetSecret sets the secret with which deliveries to a path must be signed.
func (r *Receiver) SetSecret(path, secret string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secrets[path] = secret
}

// ServeHTTP stores the delivery and responds with 200.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	now := time.Now()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the sender died, and another process sends the delivery again
	}
	var envelope struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Sequence int    `json:"sequence"`
		Data     struct {
			CallID string `json:"call_id"`
		} `json:"data"`
	}
	_ = json.Unmarshal(body, &envelope)
	d := Delivery{
		Path: req.URL.Path, EventID: envelope.ID, Type: envelope.Type, Sequence: envelope.Sequence, CallID: envelope.Data.CallID,
		DeliveryID: req.Header.Get("X-Service-Delivery-Id"), Header: req.Header, Body: body, At: now, Signature: req.Header.Get("X-Service-Signature"),
	}
	r.mu.Lock()
	d.Signed = isSigned(r.secrets[d.Path], d.Signature, body, now)
	r.got = append(r.got, d)
	tell := r.OnDelivery
	r.mu.Unlock()
	if tell != nil {
		tell(d)
	}
}

// Deliveries returns the deliveries that a workspace's path has received so far.
func (r *Receiver) Deliveries(workspaceID string) []Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	var mine []Delivery
	for _, d := range r.got {
		if d.Path == "/"+workspaceID {
			mine = append(mine, d)
		}
	}
	return mine
}

// isSigned verifies a signature in the same way as a customer (docs/reference/api/webhooks.md).
func isSigned(secret, header string, body []byte, now time.Time) bool {
	stamp, mac, ok := strings.Cut(header, ",v1=")
	stamp, prefixed := strings.CutPrefix(stamp, "t=")
	seconds, err := json.Number(stamp).Int64()
	if !ok || !prefixed || err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > 300*time.Second {
		return false
	}
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(stamp + "."))
	h.Write(body)
	return hmac.Equal([]byte(hex.EncodeToString(h.Sum(nil))), []byte(mac))
}

func selfSigned() (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "rig receiver"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost", ReceiverHost},
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), nil
}
