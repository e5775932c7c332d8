package outbox_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/kafkatest"
	"ringfence.dev/libs/testkit/pgtest"
)

// All services share the advisory locks of a database. If the relay needed such a lock, another
// service could block it.
func TestRelay_NeedsNoAdvisoryLock(t *testing.T) {
	t.Parallel()
	pool, cfg := pgtest.New(t, schema, outbox.Migrations), kafkatest.New(t)
	other := pgtest.Super(t, pool, schema)
	if _, err := other.Exec(t.Context(), `SELECT pg_advisory_lock(hashtextextended('outbox relay ' || $1, 0))`,
		schema); err != nil {
		t.Fatal(err)
	}
	startRelay(t, pool, cfg)
	if err := put(t, pool, fact("k", 1)); err != nil {
		t.Fatal(err)
	}
	if got := seqOf(t, collect(t, cfg, kafka.CallRequests.Name, atLeast(1))[0]); got != 1 {
		t.Errorf("published event = %d, want 1", got)
	}
}

// giveLease gives the lease to another relay until expiresAt: a time, or "infinity".
func giveLease(t *testing.T, pool *pgxpool.Pool, expiresAt string) {
	t.Helper()
	tag, err := pool.Exec(t.Context(),
		`UPDATE outbox_leases SET holder = gen_random_uuid(), fence = fence + 1, expires_at = $1::timestamptz`, expiresAt)
	if err != nil {
		t.Fatal(err)
	}
	if tag.RowsAffected() != 1 {
		t.Fatalf("leases = %d, want 1", tag.RowsAffected())
	}
}

func TestRelay_StopsPublishingWithoutTheLease(t *testing.T) {
	t.Parallel()
	pool, cfg := pgtest.New(t, schema, outbox.Migrations), kafkatest.New(t)
	relay, _ := startRelay(t, pool, cfg)
	if err := put(t, pool, fact("k", 1)); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "the relay publishes", func() bool { return countRows(t, pool) == 0 })
	relayID := leader(t, pool)

	giveLease(t, pool, "infinity")
	waitsForLease := func() bool {
		var waiting int
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()
				AND query LIKE '%outbox_leases%OR expires_at <=%'
				AND query NOT LIKE '%pg_stat_activity%' -- another connection's copy of this query`).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
		return waiting == 1
	}
	testkit.Until(t, "the relay tries to take the lease back", waitsForLease)
	if err := put(t, pool, fact("k", 2)); err != nil {
		t.Fatal(err)
	}
	relay.Wake()
	if got := countRows(t, pool); got != 1 {
		t.Errorf("rows in the outbox while another holds the lease = %d, want 1", got)
	}
	giveLease(t, pool, "-infinity")
	testkit.Until(t, "the relay publishes again", func() bool { return countRows(t, pool) == 0 })
	if got := leader(t, pool); got != relayID {
		t.Errorf("leader = %q, want %q", got, relayID)
	}
}

func TestRelay_StoppedRelayReleasesTheLease(t *testing.T) {
	t.Parallel()
	pool, cfg := pgtest.New(t, schema, outbox.Migrations), kafkatest.New(t)
	_, stop := startRelay(t, pool, cfg)
	testkit.Until(t, "the relay leads", func() bool { return leader(t, pool) != "" })
	stop()
	var expires string
	if err := pool.QueryRow(t.Context(), `SELECT expires_at::text FROM outbox_leases`).Scan(&expires); err != nil {
		t.Fatal(err)
	}
	if expires != "-infinity" {
		t.Errorf("expires_at = %s, want -infinity", expires)
	}
}

// If the application role could delete the lease's row, no relay could acquire the lease again.
func TestLease_ApplicationRoleCannotDeleteTheRow(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, schema, outbox.Migrations)
	if _, err := pool.Exec(t.Context(), `DELETE FROM outbox_leases`); err == nil {
		t.Error("the running role deleted the lease, want an error")
	}
}
