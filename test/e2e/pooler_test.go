package e2e

import (
	"testing"
	"time"

	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/test/kit/sharedstack"
)

// TestPooler_CallsCompleteThroughPgBouncerDuringKills runs a stack through PgBouncer in transaction
// mode. A service's pool can open more connections to PgBouncer than PgBouncer opens to Postgres.
// The test kills each service under load.
func TestPooler_CallsCompleteThroughPgBouncerDuringKills(t *testing.T) {
	rng, hooks, bin := sharedstack.Seeded(t, 1), receiver(t), binaries(t)
	server := database(t)
	const sessions = 4
	s := start(t, bin, "POSTGRES_URL="+server.URL, "RINGFENCE_POOLER="+pgtest.Pooler(t, server.URL, sessions), "SSL_CERT_FILE="+hooks.CAFile,
		"WEBHOOK_LEASE=5s", "WEBHOOK_TIMEOUT=4s", "CLAIM_LEASE=5s", "IDEMPOTENCY_LEASE=3s", "UNCONFIRMED_AFTER=5s", "REPUBLISH_AFTER=10s")
	w := tenant(t, s, hooks, killCredit)
	underLoad(t, s, w, hooks, func() {
		for _, name := range killableProcesses {
			// the other processes have no connection pool
			if name != "postgres" && name != "broker" && name != "simcarrier" {
				pause(t, time.Duration(100+rng.IntN(300))*time.Millisecond)
				until(t, name+" is running", func() bool { return s.KillOne(name, 0) })
			}
		}
	})
}
