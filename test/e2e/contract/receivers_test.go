package contract

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/test/kit"
)

// TestReceivers_AcceptRealAndRefuseForgedWebhooks runs each example of examples/receivers as its
// README describes, with real and with forged deliveries.
func TestReceivers_AcceptRealAndRefuseForgedWebhooks(t *testing.T) {
	for _, language := range kit.ReceiverLanguages() {
		t.Run(language, func(t *testing.T) {
			hooks := stack(t).Hooks
			example, err := kit.PrepareReceiver(t.Context(), language, "../../../examples/receivers", t.TempDir())
			if errors.Is(err, kit.ErrNoRuntime) && os.Getenv("CI") != "true" {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			port, err := testkit.Port()
			if err != nil {
				t.Fatal(err)
			}
			url := fmt.Sprintf("https://127.0.0.1:%d/webhooks", port)
			w := workspace(t)
			w.topUp(t, "10")
			made := w.write.want(t, 201, "POST", subscriptions, set{"name": language, "url": url, "events": []string{"call.completed"}})
			got := launch(t, example.Command(context.WithoutCancel(t.Context()), example.Receive, "WEBHOOK_SECRET="+made.text("signing_secret"),
				fmt.Sprintf("PORT=%d", port), "TLS_CERT_FILE="+hooks.CAFile, "TLS_KEY_FILE="+hooks.KeyFile))
			got.prints(t, "listening on "+url)

			tested := w.write.want(t, 202, "POST", subscriptions+"/"+made.text("id")+"/test", nil)
			got.prints(t, "received webhook.test "+tested.text("event_id"))
			call := w.ended(t, w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1))).text("id")).text("call_id")
			got.prints(t, call)
			w.delivered(t, made.text("id"), tested.text("delivery_id"), "delivered", 204)

			refusesForged(t, got, url, made.text("signing_secret"))
			// After the rotation, the receiver does not have the new secret, so it must refuse
			// webhooks.
			w.write.want(t, 200, "POST", subscriptions+"/"+made.text("id")+"/rotate-secret", nil)
			tested = w.write.want(t, 202, "POST", subscriptions+"/"+made.text("id")+"/test", nil)
			w.delivered(t, made.text("id"), tested.text("delivery_id"), "queued", 400)
			if printed := got.printed(); strings.Count(printed, "received ") != 3 {
				t.Errorf(`printed: strings.Count(printed, "received ") = %v, want 3`, strings.Count(printed, "received "))
			} else if !strings.Contains(printed, "received call.completed ") {
				t.Errorf(`printed = %q, want it to contain "received call.completed "`, printed)
			}
			w.write.want(t, 200, "DELETE", subscriptions+"/"+made.text("id"), nil)
		})
	}
}

func (w *tenant) delivered(t *testing.T, subscription, delivery, status string, code int) {
	t.Helper()
	path, shown := w.admin+"/webhook-subscriptions/"+subscription+"/deliveries/"+delivery, answer{}
	what := fmt.Sprintf("delivery %s is %s with %d", delivery, status, code)
	err := kit.Until(t.Context(), kit.HangTimeout, what, func() (bool, error) {
		shown = w.operator.want(t, 200, "GET", path, nil)
		return shown.text("status") == status && shown.text("attempts") == "1" && shown.text("last_code") == fmt.Sprint(code), nil
	})
	if err != nil {
		t.Fatalf("%v: %s", err, shown.body)
	}
}

// refusesForged sends forged webhooks between two valid webhooks. The second valid webhook is a
// repeated delivery.
func refusesForged(t *testing.T, got *program, url, secret string) {
	t.Helper()
	sender := trusting(t, stack(t).Hooks.CAFile)
	const future, ahead, bound = "from the future", 310, 300 // ahead and bound are in seconds
	body, delivery, now := `{"id":"ours","type":"webhook.test","data":{"call_id":null}}`, uuid.NewString(), time.Now().Unix()
	good := signature(secret, now, body)
	for _, row := range []struct {
		name, signature, body string
		want                  int
	}{
		{"a valid signature", good, body, 204},
		{"no signature", "", body, 400},
		{"a signature with another secret", signature(secret+"x", now, body), body, 400},
		{"the secret without its whsec_", signature(strings.TrimPrefix(secret, "whsec_"), now, body), body, 400},
		{"too old", signature(secret, now-310, body), body, 400},
		{future, "", body, 400},
		{"one byte of the body changed", good, strings.Replace(body, "ours", "0urs", 1), 400},
		{"a signature in upper case", strings.ToUpper(good), body, 400},
		{"too large", signature(secret, now, strings.Repeat(" ", 2<<20)), strings.Repeat(" ", 2<<20), 413},
		{"a valid signature, repeated", good, body, 204},
	} {
		var status int
		var responseBody string
		var err error
		for signed := row.signature; ; {
			stamp := time.Now().Unix() + ahead
			if row.name == future {
				signed = signature(secret, stamp, row.body)
			}
			status, responseBody, err = posted(t, sender, url, delivery, signed, row.body)
			// A delayed webhook can arrive when its time is no longer too far in the future. Then
			// send the webhook again.
			if row.name != future || stamp-time.Now().Unix() > bound {
				break
			}
		}
		// The connection can break, because a receiver that does not read the whole body can close
		// it.
		if err != nil && row.want == 413 {
			continue
		}
		if err != nil {
			t.Errorf("%s: error = %v, want nil", row.name, err)
		} else if status != row.want {
			t.Errorf("%s: status = %v, want %v; body = %s", row.name, status, row.want, responseBody)
		}
	}
	got.prints(t, "repeat webhook.test ours")
}

// If signature is empty, the webhook is not signed.
func posted(
	t *testing.T, sender *http.Client, url, delivery, signature, body string,
) (status int, responseBody string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Service-Delivery-Id", delivery)
	if signature != "" {
		request.Header.Set("X-Service-Signature", signature)
	}
	response, err := sender.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	read, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(read), nil
}

// TestListen_VerifiesTheDemoWorkspacesWebhooks runs `make listen` with the running stack.
func TestListen_VerifiesTheDemoWorkspacesWebhooks(t *testing.T) {
	s := stack(t)
	cmd := exec.Command(filepath.Join(os.Getenv("RINGFENCE_BIN"), "ringfence"), "listen")
	cmd.Env = append(os.Environ(), "RINGFENCE_HOME="+s.Home)
	got := launch(t, cmd)
	url := strings.Fields(got.prints(t, "Listening at "))[2]
	got.prints(t, "webhook.test     signature verified, attempt 1, delivery ")
	body := `{"type":"call.completed","data":{"call_id":"forged"}}`
	request, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Service-Signature", signature("whsec_guessed", time.Now().Unix(), body))
	response, err := trusting(t, filepath.Join(s.Home, "ca.pem")).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != 400 {
		t.Errorf("a forged webhook was answered with %d, want 400", response.StatusCode)
	}
	got.prints(t, "REFUSED: the signature does not match the body")
	got.prints(t, `"call_id": "forged"`)
	if err := got.stop(syscall.SIGINT); err != nil {
		t.Errorf("listen stopped by Ctrl-C: %v", err)
	}
	demo := customer(t, s.Demo.ReadKey)
	if left := demo.want(t, 200, "GET", subscriptions, nil); strings.Contains(left.body, url) {
		t.Errorf("listen left its subscription behind: %s", left.body)
	}
}

// signature returns X-Service-Signature (docs/reference/api/webhooks.md).
func signature(secret string, at int64, body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%d.%s", at, body)
	return fmt.Sprintf("t=%d,v1=%s", at, hex.EncodeToString(mac.Sum(nil)))
}

func trusting(t *testing.T, caFile string) *http.Client {
	t.Helper()
	ca, err := os.ReadFile(caFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	own := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(own.CloseIdleConnections)
	return &http.Client{Transport: own, Timeout: 30 * time.Second}
}

type program struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended; err is set before
	err  error

	mu    sync.Mutex
	lines []string
}

func launch(t *testing.T, cmd *exec.Cmd) *program {
	t.Helper()
	p := &program{cmd: cmd, done: make(chan struct{})}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	if err := errors.Join(cmd.Start(), in.Close()); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer out.Close()
		for scan := bufio.NewScanner(out); scan.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, scan.Text())
			p.mu.Unlock()
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() { _ = p.stop(syscall.SIGKILL) })
	return p
}

func (p *program) stop(signal syscall.Signal) error {
	_ = p.cmd.Process.Signal(signal)
	<-p.done
	return p.err
}

func (p *program) prints(t *testing.T, text string) (line string) {
	t.Helper()
	err := kit.Until(t.Context(), kit.HangTimeout, fmt.Sprintf("%v prints %q", p.cmd.Args, text), func() (bool, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, line = range p.lines {
			if strings.Contains(line, text) {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		t.Fatalf("%v; it printed\n%s", err, p.printed())
	}
	return line
}

func (p *program) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}
