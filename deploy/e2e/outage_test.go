package e2e

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"time"

	"ringfence.dev/deploy/e2e/rig"
)

// TestDatabaseAway_CostsErrorsAndNoData cuts the connections to Postgres for 20 seconds under load.
// Clients receive 503, no accepted request is lost, and service resumes without help. The stack has its
// own settings: it reaches Postgres through a proxy.
func TestDatabaseAway_CostsErrorsAndNoData(t *testing.T) {
	hooks := receiver(t)
	db := database(t)
	address, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := rig.NewProxy(address.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Cut)
	address.Host = proxy.Addr
	s := start(t, binaries(t), "POSTGRES_URL="+address.String(), "SSL_CERT_FILE="+hooks.CAFile, "IDEMPOTENCY_LEASE=3s", "UNCONFIRMED_AFTER=5s")
	w := tenant(t, s, hooks, "10000")

	posting := &load{w: w, first: 2_000_000}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); posting.run(ctx, t, 10) }()
	pause(t, 3*time.Second)
	proxy.Cut()
	pause(t, 20*time.Second)
	if status, _, err := rig.NewClient(s.Demo.BaseURL, "").Do(t.Context(), http.MethodGet, "/readyz", nil); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("GET /readyz with the database away = %d %v, want 503", status, err)
	}
	if err := proxy.Mend(); err != nil {
		t.Fatal(err)
	}
	if err := s.AwaitReady(t.Context(), rig.HangTimeout); err != nil {
		t.Error(err)
	}
	pause(t, 3*time.Second)
	stop()
	<-done
	posting.check(t)
	if posting.answers[503] == 0 || posting.answers[0] != 0 {
		t.Errorf("answers %v, want some 503 and never none (0)", posting.answers)
	}
	v, err := s.Judge(t.Context(), w, hooks, posting.accepted, 10_000, rig.HangTimeout)
	if err != nil || v.Err() != nil {
		t.Fatal(err, v, v.Err())
	}
	t.Log(v)
}
