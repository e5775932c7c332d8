package calls_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/dialer/internal/calls"
	"ringfence.dev/services/dialer/internal/store"
)

const recoveryLease = 500 * time.Millisecond

// The generation must change after a late heartbeat, because other processes can have taken over
// calls of this process.
func TestHeartbeat_LateHeartbeatChangesTheGeneration(t *testing.T) {
	pool := pgtest.New(
		t,
		"dialer",
		outbox.Migrations,
		inbox.Migrations,
		pg.Migrations{Name: "dialer", FS: store.Migrations},
	)
	heartbeat := calls.NewHeartbeat(
		store.New(pool, uuid.Must(uuid.NewV7()), store.Timing{InstanceLease: recoveryLease}),
		recoveryLease,
	)
	if heartbeat.Generation() != 0 {
		t.Error("generation before the first heartbeat is not 0")
	}
	send := func() int64 {
		t.Helper()
		var generation int64
		// After a heartbeat that took longer than the lease, the generation is 0. Such a heartbeat
		// is repeated.
		testkit.Until(t, "the generation is not 0 after a heartbeat", func() bool {
			if err := heartbeat.Send(t.Context()); err != nil {
				t.Fatal(err)
			}
			generation = heartbeat.Generation()
			return generation != 0
		})
		return generation
	}
	first := send()
	testkit.Until(t, "the lease of a heartbeat ends", func() bool { return heartbeat.Generation() == 0 })
	if second := send(); second == first {
		t.Error("generation after a gap = generation before it, want another one")
	}

	stopped, stop := context.WithCancel(t.Context())
	stop()
	send()
	if err := heartbeat.Run(stopped); err != nil {
		t.Fatal(err)
	}
	if heartbeat.Generation() != 0 {
		t.Error("generation after the hand-over is not 0")
	}
}
