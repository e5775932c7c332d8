package webhooks_test

import (
	"bufio"
	"context"
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
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

type request struct {
	// ended is the time when the response was written. If the sender disconnected first, ended is
	// the time when the receiver noticed this.
	at, ended time.Time
	cut       bool
	line      net.Conn // the connection of the request, if the receiver knows it
	// left is the time when the sender closed the connection after this request. It is zero unless
	// the request was the last of its connection.
	left            time.Time
	event, delivery string
	attempt         int
	signature       string
	header          http.Header
	body            []byte
}

func (r request) signedWith(secret string) bool {
	stamp, mac, _ := strings.Cut(strings.TrimPrefix(r.signature, "t="), ",v1=")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	h := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(h, "%s.%s", stamp, r.body)
	return err == nil && hex.EncodeToString(h.Sum(nil)) == mac && r.at.Sub(time.Unix(seconds, 0)).Abs() < 5*time.Minute
}

type book struct {
	mu  sync.Mutex
	got []request
}

func (b *book) note(r *http.Request) (int, error) {
	at := time.Now()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err
	}
	var envelope struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(body, &envelope)
	attempt, _ := strconv.Atoi(r.Header.Get("X-Service-Delivery-Attempt"))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = append(b.got, request{
		at: at, event: envelope.ID, delivery: r.Header.Get("X-Service-Delivery-Id"), attempt: attempt,
		signature: r.Header.Get("X-Service-Signature"), header: r.Header, body: body, line: lineOf(r),
	})
	return len(b.got) - 1, nil
}

func (b *book) end(entry int, cut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got[entry].ended, b.got[entry].cut = time.Now(), cut
}

// recordClose records that a sender has closed a connection. A busy receiver can notice this only
// after its response. A sender that is still running keeps its connections open.
func (b *book) recordClose(line net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := len(b.got) - 1; i >= 0; i-- {
		if b.got[i].line == line {
			b.got[i].left = time.Now()
			return
		}
	}
}

func (b *book) all() []request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]request(nil), b.got...)
}

func (b *book) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.got)
}

// requestsFor returns the requests of one event in the order of their arrival.
func (b *book) requestsFor(event string) (mine []request) {
	for _, r := range b.all() {
		if r.event == event {
			mine = append(mine, r)
		}
	}
	return mine
}

type endpoint struct {
	book
	URL    string
	status int
	wait   time.Duration
}

func (w *testStack) receive(t *testing.T) *endpoint {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(w.Hooks.CAFile, w.Hooks.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	e := &endpoint{status: http.StatusOK}
	server := httptest.NewUnstartedServer(e)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // tests kill senders during the TLS handshake
	server.Config.ConnContext = func(ctx context.Context, line net.Conn) context.Context {
		return context.WithValue(ctx, lineKey{}, line)
	}
	server.Config.ConnState = func(line net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			e.recordClose(line)
		}
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	e.URL = server.URL
	return e
}

type lineKey struct{}

func lineOf(r *http.Request) net.Conn {
	line, _ := r.Context().Value(lineKey{}).(net.Conn)
	return line
}

func (e *endpoint) answering(status int, wait time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.status, e.wait = status, wait
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	entry, err := e.note(r)
	if err != nil {
		return // the sender died, and another process sends the request again
	}
	e.mu.Lock()
	status, wait := e.status, e.wait
	e.mu.Unlock()
	if wait > 0 {
		select {
		case <-r.Context().Done():
			e.end(entry, true)
			return
		case <-time.After(wait):
		}
	}
	w.WriteHeader(status)
	_ = http.NewResponseController(w).Flush()
	e.end(entry, r.Context().Err() != nil)
}

// link is the connection of one request to a hostile receiver.
type link struct {
	*tls.Conn
	tcp  *net.TCPConn
	over <-chan struct{}
}

func (l link) say(format string, args ...any) { _, _ = fmt.Fprintf(l, format, args...) }

// wait returns false if the sender has disconnected or the test has ended.
func (l link) wait(long time.Duration) bool {
	gone := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, l)
		close(gone)
	}()
	select {
	case <-l.over:
		return false
	case <-gone:
		return false
	case <-time.After(long):
		return true
	}
}

// hostileReceiver stores each request. Every connection has one request.
type hostileReceiver struct {
	book
	URL string
}

// listen starts a hostile receiver. kind selects its certificate, and respond sends its responses.
func (w *testStack) listen(t *testing.T, kind string, respond func(link)) *hostileReceiver {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hostileReceiver{URL: "https://" + listener.Addr().String() + "/"}
	config := &tls.Config{Certificates: []tls.Certificate{w.certificate(t, kind)}}
	over, end := context.WithCancel(context.Background())
	var open sync.WaitGroup
	serve := func(conn *net.TCPConn) {
		defer conn.Close()
		defer context.AfterFunc(over, func() { _ = conn.Close() })()
		secured := tls.Server(conn, config)
		r, err := http.ReadRequest(bufio.NewReader(secured))
		if err != nil {
			return
		}
		entry, err := h.note(r)
		if err != nil {
			return
		}
		respond(link{secured, conn, over.Done()})
		_ = secured.CloseWrite()
		h.end(entry, false)
	}
	open.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() { serve(conn.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() {
		end()
		_ = listener.Close()
		open.Wait()
	})
	return h
}

// certificate returns a certificate for 127.0.0.1. A certificate without a fault is signed by the
// authority that the stack trusts.
func (w *testStack) certificate(t *testing.T, fault string) tls.Certificate {
	t.Helper()
	authority, err := tls.LoadX509KeyPair(w.Hooks.CAFile, w.Hooks.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "receiver"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	parent, signer := authority.Leaf, authority.PrivateKey
	switch fault {
	case "":
	case "another host's":
		template.IPAddresses, template.DNSNames = []net.IP{net.IPv4(127, 0, 0, 2)}, []string{"example.com"}
	case "expired":
		template.NotAfter = time.Now().Add(-time.Minute)
	case "self-signed":
		parent, signer = template, key
	default:
		t.Fatalf("no certificate is %s", fault)
	}
	made, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{made}, PrivateKey: key}
}
