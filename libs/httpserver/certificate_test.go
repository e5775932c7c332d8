package httpserver

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ringfence.dev/libs/testkit"
)

// certificateFiles returns the files of TLS_CERT_FILE and TLS_KEY_FILE in a new folder.
func certificateFiles(t *testing.T) TLSConfig {
	t.Helper()
	dir := t.TempDir()
	return TLSConfig{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
}

// newKeyPair returns a self-signed certificate for 127.0.0.1 with this serial number, and its key.
func newKeyPair(t *testing.T, serial int64, expires time.Time) keyPair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: expires,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return keyPair{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}
}

func inAnHour() time.Time { return time.Now().Add(time.Hour) }

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func writeKeyPair(t *testing.T, files TLSConfig, pair keyPair) {
	t.Helper()
	writeFile(t, files.CertFile, pair.cert)
	writeFile(t, files.KeyFile, pair.key)
}

func loadCertificate(t *testing.T, files TLSConfig) *Certificate {
	t.Helper()
	loaded, err := files.Load()
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return loaded
}

func serialOf(t *testing.T, c *Certificate) int64 {
	t.Helper()
	current, err := c.Current()
	if err != nil {
		t.Fatal(err)
	}
	return current.Leaf.SerialNumber.Int64()
}

func TestTLSConfig_LoadRefusesFilesThatAreNotAPair(t *testing.T) {
	t.Parallel()
	one, other := newKeyPair(t, 1, inAnHour()), newKeyPair(t, 2, inAnHour())
	for _, row := range []struct {
		name string
		pair keyPair
		edit func(*TLSConfig)
		want []string // parts of the error
	}{
		{
			name: "the key of another certificate", pair: keyPair{one.cert, other.key},
			want: []string{"TLS_CERT_FILE", "TLS_KEY_FILE", "tls.key"},
		},
		{
			name: "half of a certificate", pair: keyPair{one.cert[:len(one.cert)/2], one.key},
			want: []string{"TLS_CERT_FILE", "tls.crt", "PEM"},
		},
		{name: "an empty key", pair: keyPair{one.cert, nil}, want: []string{"TLS_KEY_FILE", "tls.key", "PEM"}},
		{
			name: "no certificate file", pair: one, edit: func(c *TLSConfig) { c.CertFile += ".missing" },
			want: []string{"TLS_CERT_FILE", "tls.crt.missing", "check the path"},
		},
		{
			name: "no key file", pair: one, edit: func(c *TLSConfig) { c.KeyFile += ".missing" },
			want: []string{"TLS_KEY_FILE", "tls.key.missing", "check the path"},
		},
		{
			name: "only a certificate", pair: one, edit: func(c *TLSConfig) { c.KeyFile = "" },
			want: []string{"TLS_KEY_FILE is not", "set both"},
		},
		{
			name: "only a key", pair: one, edit: func(c *TLSConfig) { c.CertFile = "" },
			want: []string{"TLS_CERT_FILE is not", "set both"},
		},
	} {
		files := certificateFiles(t)
		writeKeyPair(t, files, row.pair)
		if row.edit != nil {
			row.edit(&files)
		}
		_, err := files.Load()
		if err == nil {
			t.Errorf("%s: Load returned no error", row.name)
			continue
		}
		for _, want := range row.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error = %q, want it to contain %q", row.name, err, want)
			}
		}
		if strings.Contains(err.Error(), "PRIVATE") {
			t.Errorf("%s: the error %q contains a key", row.name, err)
		}
	}
	if loaded, err := (TLSConfig{}).Load(); err != nil {
		t.Errorf("without files: %v", err)
	} else if loaded != nil {
		t.Error("without files: a certificate, want nil")
	}
}

// captureLog returns the text that is logged from now on. A test that uses it must not be parallel.
func captureLog(t *testing.T) *bytes.Buffer {
	t.Helper()
	var text bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return &text
}

func TestCertificate_IgnoresAnIncompletePairAndLogsItOnce(t *testing.T) {
	files := certificateFiles(t)
	writeKeyPair(t, files, newKeyPair(t, 1, inAnHour()))
	loaded := loadCertificate(t, files)
	next := newKeyPair(t, 2, inAnHour())
	for _, step := range []struct {
		name  string
		write func()
		warns int
		want  int64
	}{
		{name: "unchanged", write: func() {}, want: 1},
		{name: "half of the certificate", write: func() { writeFile(t, files.CertFile, next.cert[:100]) }, warns: 1, want: 1},
		{name: "a certificate without its key", write: func() { writeFile(t, files.CertFile, next.cert) }, warns: 1, want: 1},
		{name: "no key file", write: func() { _ = os.Remove(files.KeyFile) }, warns: 1, want: 1},
		{name: "both files", write: func() { writeFile(t, files.KeyFile, next.key) }, want: 2},
		{name: "an empty certificate", write: func() { writeFile(t, files.CertFile, nil) }, warns: 1, want: 2},
		{name: "the earlier content", write: func() { writeFile(t, files.CertFile, next.cert) }, want: 2},
	} {
		step.write()
		text := captureLog(t)
		for range 3 {
			loaded.reload(t.Context())
		}
		if got := strings.Count(text.String(), "TLS certificate not loaded"); got != step.warns {
			t.Errorf("%s: %d warnings, want %d: %s", step.name, got, step.warns, text)
		}
		if got := serialOf(t, loaded); got != step.want {
			t.Errorf("%s: serial number of the current certificate = %d, want %d", step.name, got, step.want)
		}
		if strings.Contains(text.String(), "PRIVATE") {
			t.Errorf("%s: the log contains a key: %s", step.name, text)
		}
	}
}

func TestCertificate_ExpiredCertificateIsUsedAndLogged(t *testing.T) {
	files := certificateFiles(t)
	writeKeyPair(t, files, newKeyPair(t, 1, time.Now().Add(-time.Hour)))
	text := captureLog(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := loadCertificate(t, files).Run(ctx); err != nil {
		t.Errorf("Run: %v", err)
	}
	if !strings.Contains(text.String(), "TLS certificate has expired") {
		t.Errorf("log = %q, want a warning", text)
	}
}

func TestCertificate_LogsAWarningBeforeItExpires(t *testing.T) {
	text := captureLog(t)
	synctest.Test(t, func(t *testing.T) {
		files := certificateFiles(t)
		writeKeyPair(t, files, newKeyPair(t, 1, time.Now().Add(expiryNotice+90*time.Minute)))
		certificate := loadCertificate(t, files)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- certificate.Run(ctx) }()
		for hours, want := range []int{0, 0, 1, 2} {
			if got := strings.Count(text.String(), "TLS certificate expires soon"); got != want {
				t.Errorf("warnings after %d hours = %d, want %d", hours, got, want)
			}
			time.Sleep(expiryInterval + time.Minute)
			synctest.Wait()
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestTLSListener_LimitsConcurrentHandshakes(t *testing.T) {
	t.Parallel()
	files := certificateFiles(t)
	pair := newKeyPair(t, 1, time.Now().Add(time.Hour))
	writeKeyPair(t, files, pair)
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := newTLSListener(raw, loadCertificate(t, files), nil)
	listener.slots = make(chan struct{}, 1)
	t.Cleanup(func() { _ = listener.Close() })
	accepted := make(chan net.Conn, 1)
	go func() {
		if conn, err := listener.Accept(); err == nil {
			accepted <- conn
		}
	}()
	idle, err := net.Dial("tcp", raw.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "a handshake begins", func() bool { return len(listener.slots) == 1 })
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pair.cert)
	shaken := make(chan error, 1)
	go func() {
		conn, err := tls.Dial("tcp", raw.Addr().String(), &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() })
		}
		shaken <- err
	}()
	select {
	case err := <-shaken:
		t.Errorf("handshake beside the limit ended with %v", err)
	case <-time.After(50 * time.Millisecond): // the handshake still waits for a free slot
	}
	_ = idle.Close()
	if err := <-shaken; err != nil {
		t.Errorf("handshake after the place was free: %v", err)
	}
	_ = (<-accepted).Close()
}

// serveTLS runs a Server with the certificate until the test ends, and returns its address.
func serveTLS(t *testing.T, certificate *Certificate, handler http.Handler) string {
	t.Helper()
	addr := free(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- (&Server{Addr: addr, Handler: handler, Certificate: certificate}).Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	testkit.NoError(t, func() error {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	return addr
}

// newTLSClient returns a client that trusts the pairs, with or without HTTP/2.
func newTLSClient(t *testing.T, http2 bool, pairs ...keyPair) *http.Client {
	t.Helper()
	trusted := x509.NewCertPool()
	for _, pair := range pairs {
		trusted.AppendCertsFromPEM(pair.cert)
	}
	// MaxConnsPerHost makes a request wait for the open connection. Otherwise the request could open
	// another connection.
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: http2, MaxConnsPerHost: 1,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: testkit.Timeout}
}

var okHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if r.TLS == nil {
		http.Error(w, "Request.TLS is nil", http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, r.Proto)
})

// Clients send requests over open and new connections, in HTTP/1.1 and HTTP/2, while the files are
// replaced. No request fails, an open connection continues, and a new one gets the new certificate.
func TestServer_CertificateIsReplacedUnderLoad(t *testing.T) {
	t.Parallel()
	files := certificateFiles(t)
	pairs := []keyPair{newKeyPair(t, 1, inAnHour()), newKeyPair(t, 2, inAnHour()), newKeyPair(t, 3, inAnHour())}
	writeKeyPair(t, files, pairs[0])
	certificate := loadCertificate(t, files)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = certificate.Run(ctx) }()
	addr := serveTLS(t, certificate, okHandler)

	get := func(client *http.Client) (proto string, serial int64) {
		answer, err := client.Get("https://" + addr)
		if err != nil {
			t.Errorf("GET: %v", err)
			return "", 0
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Errorf("read the response: %v", err)
		}
		return string(body), answer.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	var load sync.WaitGroup
	var stop atomic.Bool
	for _, row := range []struct {
		http2, keep bool
		proto       string
	}{
		{http2: false, keep: true, proto: "HTTP/1.1"}, {http2: false, keep: false, proto: "HTTP/1.1"},
		{http2: true, keep: true, proto: "HTTP/2.0"}, {http2: true, keep: false, proto: "HTTP/2.0"},
	} {
		client := newTLSClient(t, row.http2, pairs...)
		load.Go(func() {
			for !stop.Load() {
				proto, serial := get(client)
				if proto != row.proto {
					t.Errorf("protocol = %q, want %s", proto, row.proto)
				}
				if row.keep && serial != 1 {
					t.Errorf("%s: the open connection was replaced: serial number %d, want 1", row.proto, serial)
				}
				if !row.keep {
					client.CloseIdleConnections()
				}
				if t.Failed() {
					return
				}
			}
		})
	}
	for i, pair := range pairs[1:] {
		writeKeyPair(t, files, pair)
		want := int64(i + 2)
		testkit.Until(t, "a new connection gets the new certificate", func() bool {
			_, serial := get(newTLSClient(t, true, pairs...))
			return serial == want
		})
	}
	stop.Store(true)
	load.Wait()
}

func TestServer_TLSRefusesOldVersionsAndPlainHTTP(t *testing.T) {
	t.Parallel()
	files := certificateFiles(t)
	pair := newKeyPair(t, 1, inAnHour())
	writeKeyPair(t, files, pair)
	addr := serveTLS(t, loadCertificate(t, files), okHandler)

	old := newTLSClient(t, false, pair)
	old.Transport.(*http.Transport).TLSClientConfig.MaxVersion = tls.VersionTLS11
	if answer, err := old.Get("https://" + addr); err == nil {
		_ = answer.Body.Close()
		t.Error("TLS 1.1 was accepted")
	}
	if _, err := newTLSClient(t, false).Get("https://" + addr); err == nil {
		t.Error("a client that does not trust the certificate got a response")
	}
	answer, err := http.Get("http://" + addr)
	if err != nil {
		t.Fatalf("GET http:// = %v", err)
	}
	wantErrorBody(t, answer, http.StatusBadRequest, "https://")
}

func TestServer_UnreadableRequestsOverTLSGetTheErrorBody(t *testing.T) {
	t.Parallel()
	files := certificateFiles(t)
	writeKeyPair(t, files, newKeyPair(t, 1, inAnHour()))
	addr := serveTLS(t, loadCertificate(t, files), okHandler)
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	wantErrorBody(t, answer, http.StatusBadRequest, "percent-encoding")
}

func wantErrorBody(t *testing.T, answer *http.Response, status int, text string) {
	t.Helper()
	defer answer.Body.Close()
	if answer.StatusCode != status {
		t.Errorf("status = %d, want %d", answer.StatusCode, status)
	}
	var body struct {
		Error struct{ Code, Message string }
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		t.Fatalf("body: %v", err)
	}
	if body.Error.Code != "bad_request" {
		t.Errorf("code = %q, want bad_request", body.Error.Code)
	}
	if !strings.Contains(body.Error.Message, text) {
		t.Errorf("message = %q, want it to contain %q", body.Error.Message, text)
	}
}

// Clients that open a connection and send nothing delay no other client, and the server stops
// without waiting for them.
func TestServer_SilentTLSClientsDelayNoOtherClient(t *testing.T) {
	t.Parallel()
	files := certificateFiles(t)
	pair := newKeyPair(t, 1, inAnHour())
	writeKeyPair(t, files, pair)
	addr := serveTLS(t, loadCertificate(t, files), okHandler)
	for range 50 {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	answer, err := newTLSClient(t, true, pair).Get("https://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("status = %d, want 200", answer.StatusCode)
	}
}
