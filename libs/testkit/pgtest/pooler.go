package pgtest

import (
	"bufio"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit"
)

// poolerVariable names an environment variable. If its value is "transaction", every pool of New
// connects through a separate PgBouncer (`make pooler`).
const poolerVariable = "RINGFENCE_TEST_POOLER"

// poolSessions is the number of sessions of the pooler. The number is low, so that a client often
// gets a session that other clients have used before.
const poolSessions = 3

// unprivilegedUser is the user id of PgBouncer, which refuses to run as root.
const unprivilegedUser = 65534

// Pooler starts a PgBouncer in transaction mode in front of a server and returns its address.
// sessions is the number of sessions per role and database. PgBouncer stops when the test ends. If
// PgBouncer is not installed, the test is skipped, or fails with CI=true.
func Pooler(t testing.TB, super string, sessions int) (address string) {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("PgBouncer is missing (`make peers` installs it): %v", err)
		}
		t.Skip("no PgBouncer here: apt-get install pgbouncer")
	}
	to, err := url.Parse(super)
	if err != nil {
		t.Fatalf("parse the superuser's URL: %v", err)
	}
	port, err := testkit.Port()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "ringfence-pooler-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // the unprivileged user must be able to read the folder
		t.Fatal(err)
	}
	secret, _ := to.User.Password()
	users := fmt.Sprintf("%q %q\n", to.User.Username(), secret)
	config := fmt.Sprintf(`[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
pool_mode = transaction
auth_type = scram-sha-256
auth_file = %s
auth_user = %s
auth_query = SELECT usename, passwd FROM pg_shadow WHERE usename = $1
default_pool_size = %d
max_client_conn = 1000
`, to.Hostname(), to.Port(), port, filepath.Join(dir, "users"), to.User.Username(), sessions)
	for name, text := range map[string]string{"users": users, "pgbouncer.ini": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(program, filepath.Join(dir, "pgbouncer.ini"))
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: unprivilegedUser, Gid: unprivilegedUser}}
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start PgBouncer: %v", err)
	}
	drained, last := make(chan struct{}), ""
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-drained; _ = cmd.Wait() })
	up := make(chan struct{})
	go func() {
		defer close(drained)
		lines, open := bufio.NewScanner(stderr), false
		for lines.Scan() {
			last = lines.Text()
			if !open && strings.Contains(lines.Text(), "process up") {
				open = true
				close(up)
			}
		}
	}()
	select {
	case <-up:
	case <-drained:
		t.Fatalf("PgBouncer ended before it was ready: %s", last)
	case <-time.After(startTimeout):
		t.Fatal("PgBouncer is not ready")
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// poolConfig returns the configuration with which the pool of the application role connects to the
// database.
func poolConfig(t testing.TB, super, database, schema string) pg.Config {
	t.Helper()
	direct := databaseURL(super, database, pg.AppRole(schema))
	if os.Getenv(poolerVariable) != "transaction" {
		return pg.Config{URL: direct, MaxConns: 10}
	}
	address, err := url.Parse(direct)
	if err != nil {
		t.Fatalf("parse %s: %v", serverVariable, err)
	}
	address.Host = Pooler(t, super, poolSessions)
	return pg.Config{URL: address.String(), DirectURL: direct, MaxConns: 10}
}
