package main

import (
	"bytes"
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
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ringfence.dev/libs/testkit"
)

// fakeStack serves the routes that the commands use and sends webhooks as the dispatcher does.
type fakeStack struct {
	t      *testing.T
	home   string
	sender *http.Client
	server *httptest.Server

	mu      sync.Mutex
	subs    []subscription
	created int
	deleted int
	forge   bool // true: webhooks are signed with a wrong secret
	url     string
	ref     string
	looks   int
	blocked bool
	refuse  string // the error code that POST /v1/calls returns
	silent  bool   // true: no webhooks are sent
	// statuses contains the status of the response to each webhook.
	statuses []int
}

const fakeSecret = "whsec_fake"

func newFakeStack(t *testing.T) *fakeStack {
	t.Helper()
	f := &fakeStack{t: t, home: t.TempDir()}
	pool := f.authority()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	f.sender = &http.Client{Transport: transport, Timeout: testkit.Timeout}
	t.Cleanup(f.sender.CloseIdleConnections)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /v1/webhook-subscriptions", f.subscribe)
	mux.HandleFunc("GET /v1/webhook-subscriptions", f.list)
	mux.HandleFunc("DELETE /v1/webhook-subscriptions/{id}", f.unsubscribe)
	mux.HandleFunc("POST /v1/webhook-subscriptions/{id}/test", f.test)
	mux.HandleFunc("GET /v1/events", f.stream)
	mux.HandleFunc("POST /v1/calls", f.place)
	mux.HandleFunc("GET /v1/call-requests/{id}", f.request)
	mux.HandleFunc("GET /v1/calls/{id}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, f.call("completed")) })
	f.server = httptest.NewServer(mux)
	t.Cleanup(f.server.Close)
	demo := fmt.Sprintf(`{"base_url":%q,"agent_id":"a","write_key":"write","read_key":"read"}`, f.server.URL)
	if err := os.WriteFile(filepath.Join(f.home, "demo.json"), []byte(demo), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("RINGFENCE_HOME", f.home)
	return f
}

func (f *fakeStack) authority() *x509.CertPool {
	f.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		f.t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		f.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	for name, block := range map[string]*pem.Block{"ca.pem": {Type: "CERTIFICATE", Bytes: der}, "ca-key.pem": {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(filepath.Join(f.home, name), pem.EncodeToMemory(block), 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
	cert, _ := x509.ParseCertificate(der)
	pool.AddCert(cert)
	return pool
}

func (f *fakeStack) subscribe(w http.ResponseWriter, r *http.Request) {
	body := subscription{Status: "active"}
	_ = json.NewDecoder(r.Body).Decode(&body)
	f.mu.Lock()
	defer f.mu.Unlock()
	active := 0
	for _, sub := range f.subs {
		if sub.Status == "active" {
			active++
		}
	}
	if active >= 5 {
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w,
			`{"error":{"code":"subscription_limit_reached","message":"Five are active. Pause or delete one first."}}`)
		return
	}
	f.created++
	body.ID = fmt.Sprintf("sub-%d", f.created)
	f.subs, f.url = append(f.subs, body), body.URL
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"id":%q,"signing_secret":%q,"store_this":"x"}`, body.ID, fakeSecret)
}

func (f *fakeStack) list(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	data := []map[string]any{}
	for _, sub := range f.subs {
		data = append(data, map[string]any{"id": sub.ID, "name": sub.Name, "url": sub.URL, "status": sub.Status})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"data": data, "has_more": false})
}

func (f *fakeStack) unsubscribe(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.subs = slices.DeleteFunc(f.subs, func(sub subscription) bool {
		if sub.ID != r.PathValue("id") {
			return false
		}
		if !strings.HasPrefix(sub.Name, ownName) {
			f.t.Errorf("the customer's subscription %s was deleted", sub.ID)
		}
		f.deleted++
		return true
	})
	_, _ = io.WriteString(w, `{"deleted":true}`)
}

func (f *fakeStack) fill(name, url string) {
	for i := range 5 {
		f.subs = append(f.subs, subscription{ID: fmt.Sprintf("old-%d", i), Name: name, URL: url, Status: "active"})
	}
}

func (f *fakeStack) test(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, `{"queued":true}`)
	go f.send(`{"type":"webhook.test","data":{"message":"hello","call_id":null}}`)
}

func (f *fakeStack) place(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Ref string `json:"external_ref"`
	}
	_ = json.NewDecoder(r.Body).Decode(&body)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ref = body.Ref
	if f.refuse != "" {
		w.WriteHeader(http.StatusPaymentRequired)
		fmt.Fprintf(w, `{"error":{"code":%q,"message":"The wallet cannot cover this call."}}`, f.refuse)
		return
	}
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, `{"id":"req-1","status":"queued"}`)
	if f.silent || f.blocked {
		return
	}
	go func() {
		f.send(`{"type":"call.completed","data":{"call_id":"other","external_ref":"another"}}`)
		f.send(`{"type":"call.ringing","data":` + f.call("ringing") + `}`)
		f.send(`{"type":"call.completed","data":` + f.call("completed") + `}`)
	}()
}

func (f *fakeStack) call(status string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprintf(`{"call_id":"call-1","to":"+14155550142","status":%q,"outcome":"interested","credits_charged":0.0033,"external_ref":%q,
		"timings":{"talk_seconds":4},"summary":{"outcome":"interested","confidence":0.92,"next_action":"send an offer","key_interests":["price","speed"]}}`, status, f.ref)
}

func (f *fakeStack) request(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	switch {
	case f.blocked:
		_, _ = io.WriteString(w, `{"id":"req-1","status":"blocked","call_id":null,"error_code":"recipient_dnd","error_detail":"The number opted out."}`)
	case f.looks == 1:
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `{"error":{"code":"rate_limited","message":"Slow down."}}`)
	case f.looks == 2:
		_, _ = io.WriteString(w, `{"id":"req-1","status":"dialing","call_id":"call-1"}`)
	default:
		_, _ = io.WriteString(w, `{"id":"req-1","status":"completed","call_id":"call-1"}`)
	}
}

func (f *fakeStack) send(body string) {
	f.mu.Lock()
	url, secret := f.url, fakeSecret
	if url == "" {
		f.mu.Unlock()
		return
	}
	if f.forge {
		secret = "whsec_other"
	}
	f.mu.Unlock()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		f.t.Error(err)
		return
	}
	req.Header.Set("X-Service-Signature", sign(secret, body, time.Now()))
	req.Header.Set("X-Service-Delivery-Attempt", "1")
	if resp, err := f.sender.Do(req); err == nil {
		_ = resp.Body.Close()
		f.mu.Lock()
		f.statuses = append(f.statuses, resp.StatusCode)
		f.mu.Unlock()
	}
}

func sign(secret, body string, at time.Time) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%d.%s", at.Unix(), body)
	return fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex.EncodeToString(mac.Sum(nil)))
}

func (f *fakeStack) counts() (created, deleted int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.created, f.deleted
}

func (f *fakeStack) wantCounts(created, deleted int) {
	f.t.Helper()
	gotCreated, gotDeleted := f.counts()
	if gotCreated != created {
		f.t.Errorf("created subscriptions = %d, want %d", gotCreated, created)
	}
	if gotDeleted != deleted {
		f.t.Errorf("deleted subscriptions = %d, want %d", gotDeleted, deleted)
	}
}

func runCommand(t *testing.T, args ...string) (code int, out, faults string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), args, &o, &e)
	return code, o.String(), e.String()
}

func TestDemo_ShowsTheCallAndRemovesItsSubscription(t *testing.T) {
	f := newFakeStack(t)
	code, out, faults := runCommand(t, "demo")
	wantCode(t, "demo", code, 0)
	wantText(t, "stderr", faults, "")
	for _, want := range []string{"queued", "dialing", "call.ringing", "call.completed", "signature verified", "interested", "0.0033 credits", "price, speed", "92 %"} {
		if !strings.Contains(out, want) {
			t.Errorf("demo does not show %q:\n%s", want, out)
		}
	}
	f.wantCounts(1, 1)
}

func TestDemo_PrintsErrorsInOneLine(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(*fakeStack)
		args    []string
		want    string
	}{
		{"no demo.json", func(f *fakeStack) { _ = os.Remove(filepath.Join(f.home, "demo.json")) }, []string{"demo"}, "make run"},
		{"demo.json is invalid",
			func(f *fakeStack) {
				_ = os.WriteFile(filepath.Join(f.home, "demo.json"), []byte("{"),
					0o600)
			}, []string{"demo"}, "make run"},
		{"the stack does not respond", func(f *fakeStack) { f.server.Close() }, []string{"demo"},
			"does not respond: start it with `make run`"},
		{"the certificate authority is missing", func(f *fakeStack) { _ = os.Remove(filepath.Join(f.home, "ca.pem")) },
			[]string{"demo"}, "certificate authority"},
		{"the call is refused", func(f *fakeStack) { f.refuse = "insufficient_credits" }, []string{"demo"}, "402 insufficient_credits: The wallet cannot cover this call."},
		{"the request is blocked", func(f *fakeStack) { f.blocked = true }, []string{"demo"}, "recipient_dnd: The number opted out."},
		{"a forged webhook", func(f *fakeStack) { f.forge = true }, []string{"demo"},
			"the signature of a webhook is invalid"},
		{"no webhook arrives in time", func(f *fakeStack) { f.silent = true }, []string{"demo", "--timeout=1s"}, "within 1s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFakeStack(t)
			tt.prepare(f)
			code, _, faults := runCommand(t, tt.args...)
			wantCode(t, "demo", code, 1)
			wantContains(t, "stderr", faults, tt.want)
			wantOneLine(t, "stderr", faults)
			if created, deleted := f.counts(); created != deleted {
				t.Errorf("%d subscriptions created, %d deleted", created, deleted)
			}
		})
	}
}

func TestListen_PrintsTheResultOfTheSignatureCheck(t *testing.T) {
	for _, tt := range []struct {
		name  string
		forge bool
		want  string
	}{
		{"a valid signature is verified", false, "webhook.test     signature verified, attempt 1"},
		{"a forged signature is refused", true, "REFUSED: the signature does not match the body"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFakeStack(t)
			f.forge = tt.forge
			out := listenUntil(t, `"hello"`)
			if !strings.Contains(out, tt.want) {
				t.Errorf("listen printed\n%s\nwant %q", out, tt.want)
			}
			f.wantCounts(1, 1)
		})
	}
}

// The fake stack ends each response after one event.
func TestListen_ResumedStreamPrintsEachEventOnce(t *testing.T) {
	f := newFakeStack(t)
	out := listenUntil(t, `"third"`, "--stream")
	for _, want := range []string{"call.completed", `"first"`, `"second"`} {
		if strings.Count(out, want) < 1 {
			t.Errorf("listen --stream printed\n%s\nwant %q", out, want)
		}
	}
	if got := strings.Count(out, `"second"`); got != 1 {
		t.Errorf("second event printed %d times, want once", got)
	}
	f.wantCounts(0, 0)
}

func TestListen_RefusesInvalidStreamFlags(t *testing.T) {
	newFakeStack(t)
	for _, args := range [][]string{{"--stream", "--port", "1"}, {"--after", "x"}, {"--stream", "--after", "x"}} {
		code, _, faults := runCommand(t, append([]string{"listen"}, args...)...)
		wantCode(t, strings.Join(args, " "), code, 1)
		wantOneLine(t, "stderr", faults)
	}
}

// stream is the fake of GET /v1/events. It has three events.
func (f *fakeStack) stream(w http.ResponseWriter, r *http.Request) {
	ids := []string{
		"7b9e6d5c-4f3a-5b2c-9d1e-0f1a2b3c4d5e",
		"c3d4e5f6-a7b8-5c9d-8e0f-1a2b3c4d5e6f",
		"d4e5f6a7-b8c9-5d0e-9f1a-2b3c4d5e6f7a",
	}
	next := slices.Index(ids, r.Header.Get("Last-Event-ID")) + 1
	if next < len(ids) {
		text := []string{"first", "second", "third"}[next]
		fmt.Fprintf(w, ": open\n\nid: %s\nevent: call.completed\ndata: {\"n\":%q}\n\n", ids[next], text)
	}
}

func listenUntil(t *testing.T, text string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reader, writer := io.Pipe()
	done := make(chan int)
	go func() {
		code := run(ctx, append([]string{"listen"}, args...), writer, io.Discard)
		_ = writer.Close()
		done <- code
	}()
	var out strings.Builder
	for buffer := make([]byte, 4096); !strings.Contains(out.String(), text); {
		n, err := reader.Read(buffer)
		out.Write(buffer[:n])
		if err != nil {
			t.Fatalf("listen ended: %v\n%s", err, out.String())
		}
	}
	cancel()
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	if code := <-done; code != 0 {
		t.Errorf("listen stopped by Ctrl-C = %d, want 0", code)
	}
	return out.String()
}

func TestRun_UnknownCommandExitsWithStatus2(t *testing.T) {
	code, _, faults := runCommand(t, "dance")
	wantCode(t, "unknown command", code, 2)
	wantContains(t, "stderr", faults, "--help")
	code, out, _ := runCommand(t)
	wantCode(t, "no command", code, 0)
	wantContains(t, "help", out, "demo")
	wantContains(t, "help", out, "listen")
}
