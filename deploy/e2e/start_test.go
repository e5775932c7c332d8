package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"ringfence.dev/deploy/e2e/rig"
)

// binaries is where `make test` puts the programs it built.
func binaries(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: the whole stack is not started")
	}
	dir := os.Getenv("RINGFENCE_BIN")
	if dir == "" {
		t.Fatal("RINGFENCE_BIN is not set: run `make test`, which builds the programs and sets it")
	}
	return dir
}

// start brings up a stack of its own for the test, with simulated time at a fiftieth.
func start(t *testing.T, bin string, env ...string) *rig.Stack {
	t.Helper()
	home, err := os.MkdirTemp("", "ringfence-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(home, 0o755); err != nil { // an unprivileged Postgres must reach it
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			_ = os.RemoveAll(home)
			return
		}
		t.Logf("kept %s, see stack.log there", home)
	})
	port, admin := freePort(t), freePort(t)
	s, err := rig.Start(t.Context(), rig.Options{Bin: bin, Home: home, Env: append([]string{
		fmt.Sprintf("RINGFENCE_PORT=%d", port), fmt.Sprintf("RINGFENCE_ADMIN_PORT=%d", admin), "SIMULATOR_TIME_SCALE=0.02",
	}, env...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil && !t.Failed() {
			t.Errorf("stop the stack: %v", err)
		}
		if t.Failed() {
			t.Logf("the end of the stack's log:\n%s", s.Tail(60))
		}
	})
	return s
}

func freePort(t *testing.T) int {
	t.Helper()
	port, err := rig.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func receiver(t *testing.T) *rig.Receiver {
	t.Helper()
	r, err := rig.NewReceiver(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// tenant makes a workspace with credit whose events reach r.
func tenant(t *testing.T, s *rig.Stack, r *rig.Receiver, credit string) *rig.Workspace {
	t.Helper()
	w, err := s.NewWorkspace(t.Context(), t.Name(), credit)
	if err != nil {
		t.Fatal(err)
	}
	if r != nil {
		if _, err := w.Subscribe(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func until(t *testing.T, within time.Duration, what string, cond func() bool) {
	t.Helper()
	err := rig.Until(context.WithoutCancel(t.Context()), within, what, func() (bool, error) { return cond(), nil })
	if err != nil {
		t.Fatal(err)
	}
}

// seeded is the test's source of chance; RINGFENCE_SEED repeats a run.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if given, err := strconv.ParseUint(os.Getenv("RINGFENCE_SEED"), 10, 64); err == nil {
		seed = given
	}
	t.Logf("RINGFENCE_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// number is a distinct callee; its last two digits decide what happens (contract.md §8).
func number(n int) string { return fmt.Sprintf("+1415%07d", n) }
