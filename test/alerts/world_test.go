package alerts

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/test/kit"
)

// testStack is a stack under load, with receivers for its webhooks and traces.
type testStack struct {
	*kit.Stack
	home         string
	traces       *kit.Traces
	hooks        *kit.Receiver
	tenant       *kit.Workspace
	proxy        *kit.Proxy   // forwards the stack's connections to Postgres
	url          string       // the superuser's URL of Postgres, without the proxy
	refusesAll   atomic.Bool  // true: the unreliable endpoint refuses every request
	respondsLate atomic.Bool  // true: the unreliable endpoint responds after 1.5 s
	failing      atomic.Bool  // true: the calls of the load fail
	quiet        atomic.Bool  // true: the load places no calls
	unreliableID string       // the subscription id of the unreliable endpoint
	secondStack  *secondStack // the second stack, only in `make observe`
	numbers      atomic.Int64
}

// startWorld creates a customer with three endpoints: a reliable one, an unreliable one, and one
// that does not exist.
func startWorld(t *testing.T) *testStack {
	t.Helper()
	bin := os.Getenv("RINGFENCE_BIN")
	switch {
	case testing.Short():
		t.Skip("-short: the whole stack is not started")
	case bin == "":
		t.Fatal("RINGFENCE_BIN is not set: run `make test-nightly`, which builds the programs and sets it")
	}
	w := &testStack{traces: kit.NewTraces()}
	t.Cleanup(w.traces.Close)
	var err error
	if w.hooks, err = kit.NewReceiver(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.hooks.Close)
	db, err := kit.StartPostgres(bin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Stop() })
	address, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	if w.proxy, err = kit.NewProxy(address.Host); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.proxy.Disconnect)
	w.url, address.Host = db.URL, w.proxy.Addr
	w.home, w.Stack = raise(t, bin, "POSTGRES_URL="+address.String(), "OTEL_EXPORTER_OTLP_ENDPOINT="+w.traces.URL, "SSL_CERT_FILE="+w.hooks.CAFile,
		"RETRY_DELAYS=1s,2s,3s,4s", "WEBHOOK_POLL=200ms", "IDEMPOTENCY_LEASE=3s", "UNCONFIRMED_AFTER=5s", "CLAIM_LEASE=5s", "WEBHOOK_TIMEOUT=2s", "WEBHOOK_LEASE=5s", "RECONCILE_EVERY=2s", "REPUBLISH_AFTER=5s")
	if w.tenant, err = w.NewWorkspace(t.Context(), t.Name(), "1000000"); err != nil {
		t.Fatal(err)
	}
	if _, err = w.tenant.Subscribe(t.Context(), w.hooks); err != nil {
		t.Fatal(err)
	}
	w.unreliableID = w.subscribe(t, w.startUnreliable(t))
	return w
}

func raise(t *testing.T, bin string, env ...string) (home string, s *kit.Stack) {
	t.Helper()
	home, err := os.MkdirTemp("", "ringfence-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			_ = os.RemoveAll(home)
		}
	})
	if err := os.Chmod(home, 0o755); err != nil { // an unprivileged Postgres must be able to read the folder
		t.Fatal(err)
	}
	for _, variable := range []string{"RINGFENCE_PORT", "RINGFENCE_ADMIN_PORT"} {
		port, err := testkit.Port()
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, fmt.Sprintf("%s=%d", variable, port))
	}
	s, err = kit.Start(t.Context(), kit.Options{Bin: bin, Home: home, Env: append([]string{"SIMULATOR_TIME_SCALE=0.02"}, env...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil && !t.Failed() {
			t.Errorf("stop the stack: %v", err)
		}
		if t.Failed() {
			t.Logf("the end of the log in %s:\n%s", home, s.Tail(40))
		}
	})
	return home, s
}

// startUnreliable starts the unreliable endpoint. It refuses the first attempt of every third
// delivery, and all attempts while refusesAll is true. While respondsLate is true, it responds
// after 1.5 s.
func (w *testStack) startUnreliable(t *testing.T) string {
	t.Helper()
	var mu sync.Mutex
	seen := map[string]bool{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		if w.respondsLate.Load() {
			every(r.Context(), 1500*time.Millisecond)
		}
		mu.Lock()
		defer mu.Unlock()
		id := r.Header.Get("X-Service-Delivery-Id")
		if fresh := !seen[id]; fresh && len(seen)%3 == 0 || w.refusesAll.Load() {
			answer.WriteHeader(http.StatusServiceUnavailable)
		}
		seen[id] = true
	}))
	pair, err := tls.LoadX509KeyPair(w.hooks.CAFile, w.hooks.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

func (w *testStack) subscribe(t *testing.T, url string) (id string) {
	t.Helper()
	var made struct{ ID string }
	err := w.tenant.API.Into(t.Context(), http.MethodPost, "/v1/webhook-subscriptions", map[string]any{
		"name": "moody", "url": url, "events": []string{"call.completed", "call.failed", "call.busy"},
	}, http.StatusCreated, &made)
	if err != nil {
		t.Fatal(err)
	}
	return made.ID
}

// load places calls until ctx ends. Most calls complete and some are busy. While failing is true,
// all calls fail.
func (w *testStack) load(ctx context.Context, pause time.Duration) {
	var all sync.WaitGroup
	defer all.Wait()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if w.quiet.Load() {
			continue
		}
		n := w.numbers.Add(1)
		ending := []int64{0, 1, 2, 90, 3, 94, 4, 5}[n%8]
		if w.failing.Load() {
			ending = 99
		}
		if n%10 == 0 {
			all.Go(func() { w.read(ctx, n) })
		}
		all.Go(func() {
			_, _ = w.tenant.Place(ctx, map[string]any{"to": fmt.Sprintf("+1415%05d%02d", n%100000, ending)})
		})
	}
}

func (w *testStack) read(ctx context.Context, n int64) {
	_, _, _ = w.tenant.API.Do(ctx, http.MethodGet, "/v1/webhook-subscriptions", nil)
	later, err := w.tenant.Place(ctx, map[string]any{"to": fmt.Sprintf("+1415%05d80", n%100000), "scheduled_for": time.Now().Add(24 * time.Hour).UTC()})
	if err == nil {
		_, _, _ = w.tenant.API.Do(ctx, http.MethodPost, "/v1/call-requests/"+later.ID+"/cancel", nil)
	}
}

// placeLater places a call that becomes due after the delay. It repeats the request after an error,
// because the effect of an earlier fault can continue for a while.
func (w *testStack) placeLater(t *testing.T, delay time.Duration) (placed kit.Request) {
	t.Helper()
	order := map[string]any{"to": fmt.Sprintf("+1415%05d00", w.numbers.Add(1)%100000),
		"scheduled_for": time.Now().Add(delay).UTC()}
	var refused error
	err := kit.Until(t.Context(), kit.HangTimeout, "a call is accepted", func() (bool, error) {
		placed, refused = w.tenant.Place(t.Context(), order)
		return refused == nil, nil
	})
	if err != nil {
		t.Fatalf("%v: %v", err, refused)
	}
	return placed
}

// pauseProcesses stops every process with the given name (SIGSTOP) while action runs.
func (w *testStack) pauseProcesses(t *testing.T, name string, action func()) {
	t.Helper()
	pids := w.Processes()[name]
	if len(pids) == 0 {
		t.Fatalf("there is no process %s", name)
	}
	signal := func(s syscall.Signal) {
		for _, pid := range slices.Clone(pids) {
			if err := syscall.Kill(pid, s); err != nil {
				t.Errorf("signal %s: %v", name, err)
			}
		}
	}
	signal(syscall.SIGSTOP)
	defer signal(syscall.SIGCONT)
	action()
}
