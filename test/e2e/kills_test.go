package e2e

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

var killableProcesses = []string{
	"gateway", "calls", "contacts-compliance", "dialer", "billing-wallet", "webhook-dispatcher",
	"simcarrier", "broker", "postgres",
}

const (
	killsEach   = 10
	killsOfAll  = 3
	postsPerSec = 25
	killCredit  = "100000"
)

// TestKills_NoCallIsLostDoubledOrUnpaid kills every process at random times under a steady load.
// Sometimes it kills all processes at the same time.
func TestKills_NoCallIsLostDoubledOrUnpaid(t *testing.T) {
	rng, system := sharedstack.Seeded(t, 1), stack(t)
	w := tenant(t, system.Stack, system.Hooks, killCredit)
	underLoad(t, system.Stack, w, system.Hooks, func() {
		killAll(t, rng, system.Stack, sharedstack.Trials(2, killsEach), sharedstack.Trials(1, killsOfAll))
	})
}

func underLoad(t *testing.T, s *kit.Stack, w *kit.Workspace, hooks *kit.Receiver, do func()) {
	t.Helper()
	posting := &load{w: w, first: 1_000_000}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); posting.run(ctx, t, postsPerSec) }()
	began := time.Now()
	do()
	if err := s.AwaitReady(t.Context(), kit.HangTimeout); err != nil {
		t.Error(err)
	}
	stop()
	<-done
	posting.check(t)

	v, err := s.Judge(t.Context(), w, hooks, posting.accepted, 100_000, kit.HangTimeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("after %s of load: %v", time.Since(began).Round(time.Second), v)
	if err := v.Err(); err != nil {
		t.Error(err)
	}
}

// killAll kills processes in random order. Each process is killed timesEach times, and all
// processes together timesAll times.
func killAll(t *testing.T, rng *rand.Rand, s *kit.Stack, timesEach, timesAll int) {
	t.Helper()
	var victims []string
	for _, name := range killableProcesses {
		for range timesEach {
			victims = append(victims, name)
		}
	}
	rng.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
	everyone := len(victims) / (timesAll + 1)
	kills := newProgress("kills", len(victims))
	for i, name := range victims {
		pause(t, time.Duration(200+rng.IntN(600))*time.Millisecond)
		until(t, name+" is running", func() bool { return s.KillOne(name, rng.IntN(8)) })
		kills.add(1)
		if i%everyone == everyone-1 && i/everyone < timesAll {
			s.Kill()
			again, err := s.Restart(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			*s = *again
		}
	}
}

// pause waits for d. With a random d, the next kill interrupts the work at a random point.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
	case <-time.After(d):
	}
}
