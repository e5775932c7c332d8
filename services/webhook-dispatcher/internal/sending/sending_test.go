package sending_test

import (
	"context"
	"encoding/pem"
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

	"github.com/google/uuid"

	"ringfence.dev/libs/guard"
	"ringfence.dev/libs/stopwatch"
	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
	"ringfence.dev/services/webhook-dispatcher/internal/sending"
)

// client trusts the test server's certificate and may reach this machine.
func client(t *testing.T, timeout time.Duration) *sending.Client {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return newClient(t, sending.Config{ExtraCAFile: file, Timeout: timeout})
}

func newClient(t *testing.T, cfg sending.Config) *sending.Client {
	t.Helper()
	c, err := sending.New(cfg, guard.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}))
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

func receiver(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	server.Config.ErrorLog = nil
	t.Cleanup(server.Close)
	return server
}

func work(url string) delivery.Work {
	return delivery.Work{
		DeliveryID: uuid.New(), EventID: uuid.New(), Attempt: 1, URL: url, Secret: "whsec_test", Body: []byte(`{"type":"call.completed"}`),
	}
}

func TestSend_JudgesTheAnswerByItsStatus(t *testing.T) {
	t.Parallel()
	c := client(t, 10*time.Second)
	for _, code := range []int{200, 201, 202, 204, 299} {
		server := receiver(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
		if answer := c.Send(t.Context(), work(server.URL)); answer.Failure != "" || answer.Code != code {
			t.Errorf("answer %d = %+v, want success", code, answer)
		}
	}
	for _, code := range []int{300, 301, 302, 304, 307, 308, 400, 404, 410, 429, 500, 503} {
		server := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "77")
			w.WriteHeader(code)
		})
		answer := c.Send(t.Context(), work(server.URL))
		if answer.Failure != delivery.NotOK || answer.Code != code {
			t.Errorf("answer %d = %+v, want %s", code, answer, delivery.NotOK)
		}
		if asked := answer.RetryAfter == 77*time.Second; asked != (code == 429 || code == 503) {
			t.Errorf("answer %d heeds Retry-After: %v", code, asked)
		}
	}
}

func TestSend_DoesNotFollowARedirect(t *testing.T) {
	t.Parallel()
	var reached atomic.Bool
	target := receiver(t, func(http.ResponseWriter, *http.Request) { reached.Store(true) })
	for _, code := range []int{301, 302, 303, 307, 308} {
		server := receiver(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target.URL, code) })
		if answer := client(t, 10*time.Second).Send(t.Context(), work(server.URL)); answer.Code != code || answer.Failure == "" {
			t.Errorf("redirect %d = %+v, want a failed attempt", code, answer)
		}
	}
	if reached.Load() {
		t.Error("the target of a redirect was asked")
	}
}

func TestSend_SendsTheBytesAndNothingOfOurs(t *testing.T) {
	t.Parallel()
	var got http.Header
	var body []byte
	var proto, method string
	server := receiver(t, func(_ http.ResponseWriter, r *http.Request) {
		got, proto, method = r.Header.Clone(), r.Proto, r.Method
		body, _ = io.ReadAll(r.Body)
	})
	w := work(server.URL + "/hook?a=1")
	if answer := client(t, 10*time.Second).Send(t.Context(), w); answer.Failure != "" {
		t.Fatalf("Send = %+v", answer)
	}
	if string(body) != string(w.Body) || method != http.MethodPost || proto != "HTTP/1.1" {
		t.Errorf("received %s %s %q, want POST HTTP/1.1 with the body as it is", method, proto, body)
	}
	for _, name := range []string{"Traceparent", "Tracestate", "Baggage", "Authorization", "Idempotency-Key", "X-Ringfence-Caller", "Accept-Encoding"} {
		if got.Get(name) != "" {
			t.Errorf("header %s = %q goes out to customers", name, got.Get(name))
		}
	}
}

// sendInTime sends with 3 s, and with twice as much when that was not enough to hear of an answer at all, on a machine that stands still.
func sendInTime(t *testing.T, w delivery.Work) (answer delivery.Answer, took, limit time.Duration) {
	t.Helper()
	for limit = 3 * time.Second; ; limit *= 2 {
		watch := stopwatch.Start(t.Context())
		answer = client(t, limit).Send(t.Context(), w)
		if took = watch.Took(); answer.Failure != delivery.Timeout || limit > 20*time.Second {
			return answer, took, limit
		}
	}
}

func TestSend_BoundsTimeAndBody(t *testing.T) {
	t.Parallel()
	t.Run("no answer", func(t *testing.T) {
		t.Parallel()
		c := client(t, 300*time.Millisecond)
		server := receiver(t, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			<-r.Context().Done()
		})
		if answer := c.Send(t.Context(), work(server.URL)); answer.Failure != delivery.Timeout || answer.Took < 300*time.Millisecond {
			t.Errorf("Send = %+v, want a timeout after 300 ms", answer)
		}
	})
	t.Run("an answer whose body never ends is still the answer", func(t *testing.T) {
		t.Parallel()
		server := receiver(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			_, _ = io.WriteString(w, "begun")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		answer, took, limit := sendInTime(t, work(server.URL))
		if answer.Failure != "" || answer.Excerpt != "begun" || took > limit+2*time.Second {
			t.Errorf("Send = %+v after %s of %s, want success in bounded time", answer, took, limit)
		}
	})
	t.Run("a huge body is not read to its end", func(t *testing.T) {
		t.Parallel()
		var sent atomic.Int64
		server := receiver(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			for chunk := make([]byte, 64<<10); r.Context().Err() == nil; {
				n, err := w.Write(chunk)
				if sent.Add(int64(n)); err != nil {
					return
				}
			}
		})
		watch := stopwatch.Start(t.Context())
		answer := client(t, time.Minute).Send(t.Context(), work(server.URL))
		if answer.Code != http.StatusTeapot || len(answer.Excerpt) > 1<<10 || watch.Took() > 5*time.Second {
			t.Errorf("Send = %+v, want 418 soon with a short excerpt", answer)
		}
	})
}

func TestSend_NamesWhatWentWrong(t *testing.T) {
	t.Parallel()
	trusting := client(t, 5*time.Second)
	server := receiver(t, func(http.ResponseWriter, *http.Request) {})
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	closed := httptest.NewTLSServer(http.NotFoundHandler())
	closed.Close()
	reset := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	})
	garbled := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_, _ = io.WriteString(conn, "not HTTP at all\r\n\r\n")
			_ = conn.Close()
		}
	})
	noSecret := work(server.URL)
	noSecret.Secret = ""
	tests := []struct {
		name   string
		client *sending.Client
		work   delivery.Work
		want   delivery.Failure
	}{
		{"a certificate nobody vouches for", newClient(t, sending.Config{Timeout: 5 * time.Second}), work(server.URL), delivery.BadTLS},
		{"a certificate of another host", trusting, work(strings.Replace(server.URL, "127.0.0.1", "localhost", 1)), delivery.BadTLS},
		{"no TLS at all", trusting, work(strings.Replace(plain.URL, "http:", "https:", 1)), delivery.BadTLS},
		{"nobody listens", trusting, work(closed.URL), delivery.Unconnected},
		{"the connection breaks", trusting, work(reset.URL), delivery.Unconnected},
		{"the answer is no HTTP", trusting, work(garbled.URL), delivery.BadAnswer},
		{"a private address", trusting, work("https://10.255.255.1/"), delivery.Blocked},
		{"no secret to sign with", trusting, noSecret, delivery.Unsendable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if answer := tt.client.Send(t.Context(), tt.work); answer.Failure != tt.want || answer.Code != 0 {
				t.Errorf("Send = %+v, want %s", answer, tt.want)
			}
		})
	}
}

func TestSend_IgnoresTheProxyOfTheEnvironment(t *testing.T) {
	var asked atomic.Bool
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Store(true) }))
	defer proxy.Close()
	t.Setenv("HTTPS_PROXY", proxy.URL)
	t.Setenv("https_proxy", proxy.URL)
	server := receiver(t, func(http.ResponseWriter, *http.Request) {})
	if answer := client(t, 5*time.Second).Send(context.Background(), work(server.URL)); answer.Failure != "" || asked.Load() {
		t.Errorf("Send = %+v, proxy asked: %v, want a direct request", answer, asked.Load())
	}
}

func TestNew_SaysWhatIsWrongWithTheCAFile(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{empty, filepath.Join(t.TempDir(), "missing.pem")} {
		if _, err := sending.New(sending.Config{ExtraCAFile: file}, guard.New(nil)); err == nil || !strings.Contains(err.Error(), "WEBHOOK_EXTRA_CA_FILE") {
			t.Errorf("New with %s = %v, want an error naming the variable", file, err)
		}
	}
}
