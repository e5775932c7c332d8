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

// TestHeart_AGapIsNotForgotten: whoever fenced a call before a gap must not take the next beat for a sign that the fence is still his.
func TestHeart_AGapIsNotForgotten(t *testing.T) {
	pool := pgtest.New(t, "dialer", outbox.Migrations, inbox.Migrations, pg.Migrations{Name: "dialer", FS: store.Migrations})
	heart := calls.NewHeartbeat(store.New(pool, uuid.Must(uuid.NewV7()), store.Timing{InstanceLease: recoveryLease}), recoveryLease)
	if heart.Life() != 0 {
		t.Error("alive before the first beat")
	}
	beat := func() int64 {
		t.Helper()
		var life int64
		testkit.Until(t, "the heart is alive after a beat", func() bool { // not after a beat that outlasts the lease
			if err := heart.Beat(t.Context()); err != nil {
				t.Fatal(err)
			}
			life = heart.Life()
			return life != 0
		})
		return life
	}
	first := beat()
	testkit.Until(t, "the lease of one beat ends", func() bool { return heart.Life() == 0 })
	if second := beat(); second == first {
		t.Error("the same life before and after a gap")
	}

	ending, end := context.WithCancel(t.Context())
	end()
	beat()
	if err := heart.Run(ending); err != nil {
		t.Fatal(err)
	}
	if heart.Life() != 0 {
		t.Error("alive after the hand-over")
	}
}
