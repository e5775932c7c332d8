package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

func binaries(t *testing.T) string {
	t.Helper()
	return sharedstack.Binaries(t)
}

// start starts a stack in which simulated time is 50 times faster. A killed process starts again
// within half a second. The audio ports are above the ephemeral ports and above the ports of
// libs/testkit.
func start(t *testing.T, bin string, env ...string) *kit.Stack {
	t.Helper()
	home, err := os.MkdirTemp("", "ringfence-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(home, 0o755); err != nil { // an unprivileged Postgres must be able to read the folder
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
	s, err := kit.Start(t.Context(), kit.Options{Bin: bin, Home: home, Env: append([]string{
		fmt.Sprintf("RINGFENCE_PORT=%d", port), fmt.Sprintf("RINGFENCE_ADMIN_PORT=%d", admin), "SIMULATOR_TIME_SCALE=0.02",
		"RINGFENCE_RESTART_PAUSE=500ms", "OUTBOX_LEASE=1s", "RTP_PORT_LOW=61000", "RTP_PORT_HIGH=65534",
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

func superuser(t *testing.T, s *kit.Stack) *pgx.Conn {
	t.Helper()
	url, err := s.SuperuserURL()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// database starts a separate Postgres for the stack's POSTGRES_URL.
func database(t *testing.T) *kit.Postgres {
	t.Helper()
	db, err := kit.StartPostgres(binaries(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Stop() })
	return db
}

func freePort(t *testing.T) int {
	t.Helper()
	port, err := testkit.Port()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func receiver(t *testing.T) *kit.Receiver {
	t.Helper()
	r, err := kit.NewReceiver(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func tenant(t *testing.T, s *kit.Stack, r *kit.Receiver, credit string) *kit.Workspace {
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

func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	err := kit.Until(context.WithoutCancel(t.Context()), kit.HangTimeout, what, func() (bool, error) {
		return cond(), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// number returns the n-th phone number. Its last two digits select the behavior of the far end
// (docs/test-numbers.md).
func number(n int) string { return fmt.Sprintf("+1415%07d", n) }
