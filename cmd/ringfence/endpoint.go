package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"ringfence.dev/examples/receivers/go/webhook"
)

const (
	loopback = "127.0.0.1"
	maxBody  = 1 << 20
)

// arrival is one received webhook.
type arrival struct {
	Type       string `json:"type"`
	Data       call   `json:"data"`
	deliveryID string
	attempt    string
	body       []byte
	// forwarded is the result of forwarding the webhook, or "" if it was not forwarded.
	forwarded string
	// fault is the reason why the signature is invalid, or nil if it is valid.
	fault error
}

// endpoint is a local HTTPS server that receives webhooks. Its certificate is signed by the
// certificate authority of the local stack.
type endpoint struct {
	url      string
	arrivals chan arrival
	server   *http.Server
	listener net.Listener
	secret   string
	// forward is nil if webhooks are not forwarded. It must be set before setSecret.
	forward *forwarder
	armed   chan struct{}
}

// openEndpoint listens on this machine. Port 0 means any free port. Requests wait until setSecret
// was called.
func openEndpoint(home string, port int) (*endpoint, error) {
	cert, err := issueCertificate(home)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("port %d is in use: choose another with --port", port)
	case err != nil:
		return nil, fmt.Errorf("listen on port %d: %w: choose another with --port", port, err)
	}
	e := &endpoint{
		url: "https://" + listener.Addr().String() + "/webhooks", arrivals: make(chan arrival, 256), armed: make(chan struct{}), listener: listener,
	}
	e.server = &http.Server{Handler: e, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	secured := tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
	go func() { _ = e.server.Serve(secured) }()
	return e, nil
}

// setSecret sets the secret with which signatures are verified. It must be called once.
func (e *endpoint) setSecret(secret string) {
	e.secret = secret
	close(e.armed)
}

func (e *endpoint) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if e.server.Shutdown(ctx) != nil {
		_ = e.server.Close()
	}
}

// ServeHTTP responds with 200 to a valid signature and with 400 otherwise. If webhooks are
// forwarded, the response to a valid signature has the status of the forwarded request, so that a
// failure is retried as in production.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	select {
	case <-e.armed:
	case <-r.Context().Done():
		return
	}
	got := arrival{
		body: body, deliveryID: r.Header.Get("X-Service-Delivery-Id"), attempt: r.Header.Get("X-Service-Delivery-Attempt"),
		fault: webhook.Verify(e.secret, r.Header.Get("X-Service-Signature"), body, time.Now()),
	}
	if got.fault == nil {
		got.fault = json.Unmarshal(body, &got)
	}
	status := http.StatusOK
	switch {
	case got.fault != nil:
		status = http.StatusBadRequest
	case e.forward != nil:
		status, got.forwarded = e.forward.send(r, body)
	}
	w.WriteHeader(status)
	select {
	case e.arrivals <- got:
	case <-r.Context().Done():
	}
}

// issueCertificate creates a certificate for this machine. The stack's certificate authority, which
// the webhook dispatcher trusts, signs it.
func issueCertificate(home string) (tls.Certificate, error) {
	authority, err := tls.LoadX509KeyPair(filepath.Join(home, "ca.pem"), filepath.Join(home, "ca-key.pem"))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("the stack's certificate authority cannot be read (%w): stop the stack and start it again with `make run`", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("create serial number: %w", err)
	}
	now := time.Now()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "ringfence local endpoint"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(0, 1, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}, authority.Leaf, &key.PublicKey, authority.PrivateKey)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("sign certificate: %w", err)
	}
	return tls.Certificate{Certificate: append([][]byte{der}, authority.Certificate...), PrivateKey: key}, nil
}
