package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"syscall"
	"testing"
	"time"

	"ringfence.dev/test/kit"
)

// outageDuration is the duration for which Postgres is disconnected. It is longer than every lease
// of the stack in this test.
const outageDuration = 5 * time.Second

// TestDatabaseOutage_NoAcceptedRequestIsLost cuts the connections to Postgres under load until
// every lease has expired. Clients must get status 503. No accepted request may be lost. The stack
// must continue without an intervention after the outage.
func TestDatabaseOutage_NoAcceptedRequestIsLost(t *testing.T) {
	hooks := receiver(t)
	db := database(t)
	address, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := kit.NewProxy(address.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Disconnect)
	address.Host = proxy.Addr
	s := start(t, binaries(t), "POSTGRES_URL="+address.String(), "SSL_CERT_FILE="+hooks.CAFile, "IDEMPOTENCY_LEASE=3s",
		"UNCONFIRMED_AFTER=5s", "INSTANCE_LEASE=2s", "CLAIM_LEASE=3s", "WEBHOOK_LEASE=3s",
		"WEBHOOK_TIMEOUT=2s")
	w := tenant(t, s, hooks, "10000")

	posting := &load{w: w, first: 2_000_000}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); posting.run(ctx, t, 10) }()
	until(t, "30 requests are accepted", func() bool { return posting.count(202) >= 30 })
	proxy.Disconnect()
	pause(t, outageDuration)
	until(t, "10 requests are refused", func() bool { return posting.count(503) >= 10 })
	status, _, err := kit.NewClient(s.Demo.BaseURL, "").Do(t.Context(), http.MethodGet, "/readyz", nil)
	if err != nil {
		t.Errorf("GET /readyz without the database: %v", err)
	}
	if status != http.StatusServiceUnavailable {
		t.Errorf("GET /readyz without the database = %d, want 503", status)
	}
	if err := proxy.Restore(); err != nil {
		t.Fatal(err)
	}
	if err := s.AwaitReady(t.Context(), kit.HangTimeout); err != nil {
		t.Error(err)
	}
	before := posting.count(202)
	until(t, "30 more requests are accepted", func() bool { return posting.count(202) >= before+30 })
	stop()
	<-done
	posting.check(t)
	if got := posting.count(0); got != 0 {
		t.Errorf("requests without an answer = %d, want 0", got)
	}
	v, err := s.Judge(t.Context(), w, hooks, posting.accepted, 10_000, kit.HangTimeout)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Err(); err != nil {
		t.Error(err)
	}
	t.Log(v)
}

const firstWithoutKafka = 9_000_000

// TestKafkaOutage_DialersAreNotReady stops the broker (SIGSTOP). During the outage, /readyz of the
// dialers must return 503, even if no call request is due. A call request that is accepted during
// the outage must be dialed later.
func TestKafkaOutage_DialersAreNotReady(t *testing.T) {
	system := stack(t)
	s, hooks := system.Stack, system.Hooks
	w := tenant(t, s, hooks, "1000")
	dialers, err := s.PrivateAddresses("dialer")
	if err != nil {
		t.Fatal(err)
	}
	if got := len(dialers); got != 2 {
		t.Fatalf("dialers = %d, want 2", got)
	}
	awaitStatus := func(want int) {
		t.Helper()
		for _, address := range dialers {
			until(t, fmt.Sprintf("GET /readyz of the dialer at %s is %d", address, want), func() bool {
				status, _, err := kit.NewClient("http://"+address, "").Do(t.Context(), http.MethodGet, "/readyz", nil)
				return err == nil && status == want
			})
		}
	}
	brokers := s.Processes()["broker"]
	if got := len(brokers); got != 1 {
		t.Fatalf("brokers = %d, want 1", got)
	}
	signal := func(sig syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(brokers[0], sig); err != nil {
			t.Errorf("send %s to the broker: %v", sig, err)
		}
	}
	awaitStatus(http.StatusOK)
	signal(syscall.SIGSTOP)
	t.Cleanup(func() { signal(syscall.SIGCONT) })
	awaitStatus(http.StatusServiceUnavailable)
	posting := &load{w: w, accepted: map[string]string{}, answers: map[int]int{}}
	posting.place(t.Context(), number(firstWithoutKafka))
	signal(syscall.SIGCONT)
	awaitStatus(http.StatusOK)
	until(t, "the call ends", func() bool { return terminalEvents(hooks, w) == 1 })
	posting.check(t)
	judge(t, s, w, hooks, posting.accepted)
}
