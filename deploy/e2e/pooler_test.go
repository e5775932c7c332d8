package e2e

import (
	"context"
	"testing"
	"time"

	"ringfence.dev/deploy/e2e/rig"
	"ringfence.dev/libs/pgtest"
)

// TestPooler_CallsGoThroughPgBouncerAndKills puts PgBouncer in transaction mode in front of the database of the whole stack, with fewer sessions for a service than its pool has, and
// kills each service under load.
func TestPooler_CallsGoThroughPgBouncerAndKills(t *testing.T) {
	rng, hooks, bin := seeded(t), receiver(t), binaries(t)
	server, err := rig.StartPostgres(bin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	const sessions = 4
	s := start(t, bin, "POSTGRES_URL="+server.URL, "RINGFENCE_POOLER="+pgtest.Pooler(t, server.URL, sessions), "SSL_CERT_FILE="+hooks.CAFile,
		"WEBHOOK_LEASE=5s", "WEBHOOK_TIMEOUT=4s", "CLAIM_LEASE=5s", "IDEMPOTENCY_LEASE=3s", "UNCONFIRMED_AFTER=5s", "REPUBLISH_AFTER=10s")
	w := tenant(t, s, hooks, killCredit)
	posting := &load{w: w, first: 1_000_000}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); posting.run(ctx, t, postsPerSec) }()
	for _, name := range mortals {
		if name != "postgres" && name != "broker" && name != "simcarrier" { // those that have a pool
			pause(t, time.Duration(100+rng.IntN(300))*time.Millisecond)
			until(t, 30*time.Second, name+" is there to be killed", func() bool { return s.KillOne(name, 0) })
		}
	}
	if err := s.AwaitReady(t.Context(), 60*time.Second); err != nil {
		t.Error(err)
	}
	stop()
	<-done
	posting.check(t)
	v, err := s.Judge(t.Context(), w, hooks, posting.accepted, 100_000, 2*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(v)
	if err := v.Err(); err != nil {
		t.Error(err)
	}
}
