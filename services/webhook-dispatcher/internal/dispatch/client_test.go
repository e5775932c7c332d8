package dispatch_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"ringfence.dev/libs/ssrf"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/dispatch"
)

const longTimeout = 5 * time.Minute

func requireEqual[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// client returns a client that trusts the certificate of the test server and may connect to
// loopback.
func client(t *testing.T, timeout time.Duration) *dispatch.Client {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return newClient(t, dispatch.ClientConfig{ExtraCAFile: file, Timeout: timeout})
}

func newClient(t *testing.T, cfg dispatch.ClientConfig) *dispatch.Client {
	t.Helper()
	c, err := dispatch.NewClient(cfg, ssrf.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}))
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

func testReceiver(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	server.Config.ErrorLog = nil
	t.Cleanup(server.Close)
	return server
}

func work(url string) deliveries.Work {
	return deliveries.Work{
		DeliveryID: uuid.New(), EventID: uuid.New(), Attempt: 1, URL: url, Secret: "whsec_test", Body: []byte(`{"type":"call.completed"}`),
	}
}

func TestSend_OnlyA2xxStatusIsASuccess(t *testing.T) {
	t.Parallel()
	c := client(t, longTimeout)
	for _, code := range []int{200, 201, 202, 204, 299} {
		server := testReceiver(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
		response := c.Send(t.Context(), work(server.URL))
		requireEqual(t, fmt.Sprintf("failure of status %d", code), response.Failure, "")
		requireEqual(t, "code", response.Code, code)
	}
	for _, code := range []int{300, 301, 302, 304, 307, 308, 400, 404, 410, 429, 500, 503} {
		server := testReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "77")
			w.WriteHeader(code)
		})
		response := c.Send(t.Context(), work(server.URL))
		requireEqual(t, fmt.Sprintf("failure of status %d", code), response.Failure, deliveries.BadStatus)
		requireEqual(t, "code", response.Code, code)
		wantRetryAfter := map[int]time.Duration{429: 77 * time.Second, 503: 77 * time.Second}[code]
		requireEqual(t, fmt.Sprintf("RetryAfter of status %d", code), response.RetryAfter, wantRetryAfter)
	}
}

func TestSend_DoesNotFollowARedirect(t *testing.T) {
	t.Parallel()
	var reached atomic.Bool
	target := testReceiver(t, func(http.ResponseWriter, *http.Request) { reached.Store(true) })
	for _, code := range []int{301, 302, 303, 307, 308} {
		server := testReceiver(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target.URL, code) })
		response := client(t, longTimeout).Send(t.Context(), work(server.URL))
		requireEqual(t, "code", response.Code, code)
		requireEqual(t, fmt.Sprintf("failure of redirect %d", code), response.Failure, deliveries.BadStatus)
	}
	if reached.Load() {
		t.Error("the target of a redirect received a request, want none")
	}
}

func TestSend_SendsTheBodyUnchangedWithoutInternalHeaders(t *testing.T) {
	t.Parallel()
	var got http.Header
	var body []byte
	var proto, method string
	server := testReceiver(t, func(_ http.ResponseWriter, r *http.Request) {
		got, proto, method = r.Header.Clone(), r.Proto, r.Method
		body, _ = io.ReadAll(r.Body)
	})
	w := work(server.URL + "/hook?a=1")
	if response := client(t, longTimeout).Send(t.Context(), w); response.Failure != "" {
		t.Fatalf("Send = %+v, want success", response)
	}
	requireEqual(t, "body", string(body), string(w.Body))
	requireEqual(t, "method", method, http.MethodPost)
	requireEqual(t, "protocol", proto, "HTTP/1.1")
	for _, name := range []string{"Traceparent", "Tracestate", "Baggage", "Authorization", "Idempotency-Key", "X-Ringfence-Caller", "Accept-Encoding"} {
		if got.Get(name) != "" {
			t.Errorf("header %s = %q, want it to be absent", name, got.Get(name))
		}
	}
}

func TestSend_ClassifiesFailures(t *testing.T) {
	t.Parallel()
	trusting := client(t, longTimeout)
	server := testReceiver(t, func(http.ResponseWriter, *http.Request) {})
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	closed := httptest.NewTLSServer(http.NotFoundHandler())
	closed.Close()
	reset := testReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	})
	garbled := testReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_, _ = io.WriteString(conn, "not HTTP at all\r\n\r\n")
			_ = conn.Close()
		}
	})
	noSecret := work(server.URL)
	noSecret.Secret = ""
	untrusting := newClient(t, dispatch.ClientConfig{Timeout: longTimeout})
	tests := []struct {
		name   string
		client *dispatch.Client
		work   deliveries.Work
		want   deliveries.Failure
		cause  string
	}{
		{"a certificate of an unknown authority", untrusting, work(server.URL), deliveries.TLSFailed,
			"The TLS handshake failed: certificate signed by unknown authority."},
		{
			"a certificate of another host",
			trusting,
			work(strings.Replace(server.URL, "127.0.0.1", "localhost", 1)),
			deliveries.TLSFailed,
			"The TLS handshake failed: certificate is not valid for this host name.",
		},
		{"a server without TLS", trusting, work(strings.Replace(plain.URL, "http:", "https:", 1)), deliveries.TLSFailed,
			"The TLS handshake failed: the endpoint does not use TLS."},
		{"a host that does not exist", trusting, work("https://unknown.invalid/"), deliveries.NameNotResolved,
			"The host name was not resolved: no such host."},
		{"an address without a listener", trusting, work(closed.URL), deliveries.ConnectionFailed,
			"The connection failed: connection refused."},
		{"a connection that the server resets", trusting, work(reset.URL), deliveries.ConnectionFailed,
			"The connection failed: the endpoint closed the connection without a response."},
		{"a response that is not HTTP", trusting, work(garbled.URL), deliveries.BadResponse,
			"The response is not valid HTTP."},
		{"a private address", trusting, work("https://10.255.255.1/"), deliveries.BlockedAddress,
			"The address of the host is in a private network, which is not allowed."},
		{"no signing secret", trusting, noSecret, deliveries.NotSendable,
			"No request was sent, because the body or the signing secret could not be read."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			response := tt.client.Send(t.Context(), tt.work)
			requireEqual(t, "failure", response.Failure, tt.want)
			requireEqual(t, "code", response.Code, 0)
			requireEqual(t, "cause", response.Failure.Cause(response.Code, response.Detail), tt.cause)
		})
	}
}

// A response body can contain any bytes and is stored as text. Postgres refuses NUL bytes and
// invalid UTF-8. A compressed body can become huge when it is decompressed. Control characters can
// change the terminal of a person who reads the text.
func TestSend_StoresTheFirst4KiBOfAnyBodyAsText(t *testing.T) {
	t.Parallel()
	c := client(t, longTimeout)
	var bomb bytes.Buffer
	packer := gzip.NewWriter(&bomb)
	if _, err := packer.Write(make([]byte, 32<<20)); err != nil {
		t.Fatal(err)
	}
	if err := packer.Close(); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		body, want string
	}{
		"text":                         {"a\n\tb", "a\n\tb"},
		"NUL and control characters":   {"a\x00b\x1b[31mc\u202e", "a b [31mc"},
		"invalid UTF-8":                {"a\xff\xfeb", "a  b"},
		"4 KiB and more":               {strings.Repeat("x", 5000), strings.Repeat("x", 4096)},
		"a character across the limit": {strings.Repeat("x", 4095) + "ü", strings.Repeat("x", 4095)},
	} {
		server := testReceiver(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, tt.body) })
		requireEqual(t, name, c.Send(t.Context(), work(server.URL)).Excerpt, tt.want)
	}
	server := testReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb.Bytes())
	})
	response := c.Send(t.Context(), work(server.URL))
	if n := len(response.Excerpt); n > 4096 {
		t.Errorf("excerpt of a compressed body = %d bytes, want at most 4096", n)
	}
	if !utf8.ValidString(response.Excerpt) {
		t.Error("the excerpt of a compressed body is not UTF-8")
	}
}

func TestSend_IgnoresTheProxyOfTheEnvironment(t *testing.T) {
	var proxied atomic.Bool
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { proxied.Store(true) }))
	defer proxy.Close()
	t.Setenv("HTTPS_PROXY", proxy.URL)
	t.Setenv("https_proxy", proxy.URL)
	server := testReceiver(t, func(http.ResponseWriter, *http.Request) {})
	response := client(t, longTimeout).Send(context.Background(), work(server.URL))
	requireEqual(t, "failure", response.Failure, "")
	requireEqual(t, "requests reach the proxy", proxied.Load(), false)
}

func TestNewClient_NamesTheVariableOfAnInvalidCAFile(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{empty, filepath.Join(t.TempDir(), "missing.pem")} {
		_, err := dispatch.NewClient(dispatch.ClientConfig{ExtraCAFile: file}, ssrf.New(nil))
		if err == nil {
			t.Fatalf("New with %s = nil, want an error", file)
		}
		if !strings.Contains(err.Error(), "WEBHOOK_EXTRA_CA_FILE") {
			t.Errorf("New with %s = %v, want an error that names the variable", file, err)
		}
	}
}
