package failover

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/test/kit"
)

// superuser is the role that initdb creates. Loopback connections need no password.
const superuser = "ringfence"

type server struct {
	t    *testing.T
	data string
	port int
	cmd  *exec.Cmd
}

func program(t *testing.T, name string) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err == nil && len(found) > 0 {
		return found[len(found)-1]
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("find %s: %v", name, err)
	}
	return path
}

// postgresUser returns the credential of an unprivileged user, because Postgres refuses to run as
// root.
func postgresUser(t *testing.T) *syscall.Credential {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, uidErr := strconv.ParseUint(who.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(who.Gid, 10, 32)
	if uidErr != nil || gidErr != nil {
		t.Fatalf("read ids of user postgres: %v, %v", uidErr, gidErr)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// The program runs in its own process group, so that all its processes can be killed.
func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(program(t, name), args...)
	cmd.Dir = os.TempDir()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: postgresUser(t)}
	return cmd
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := command(t, name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}

func newServer(t *testing.T) *server {
	t.Helper()
	parent := "/dev/shm"
	if _, err := os.Stat(parent); err != nil {
		parent = ""
	}
	data, err := os.MkdirTemp(parent, "ringfence-failover-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(data) })
	if who := postgresUser(t); who != nil {
		if err := os.Chown(data, int(who.Uid), int(who.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	port, err := testkit.Port()
	if err != nil {
		t.Fatal(err)
	}
	return &server{t: t, data: data, port: port}
}

func newPrimary(t *testing.T) *server {
	t.Helper()
	s := newServer(t)
	run(t, "initdb", "-D", s.data, "-U", superuser, "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync")
	s.start()
	s.exec("postgres", "CREATE DATABASE ringfence")
	return s
}

// copyFrom makes a base backup of the server at an address. With the flags of a standby, the new
// server replicates from that address.
func copyFrom(t *testing.T, address string, flags ...string) *server {
	t.Helper()
	s := newServer(t)
	run(t, "pg_basebackup", append([]string{
		"-d", fmt.Sprintf("postgres://%s@%s/postgres?sslmode=disable", superuser, address), "-D", s.data, "-X", "stream",
		"-c", "fast", "--no-sync",
	}, flags...)...)
	return s
}

func (s *server) start() {
	s.t.Helper()
	args := []string{"-D", s.data}
	for _, setting := range []string{
		"listen_addresses=127.0.0.1", "unix_socket_directories=", "port=" + strconv.Itoa(s.port), "fsync=off",
		"synchronous_commit=on", "wal_level=replica", "max_wal_senders=10", "max_connections=600", "hot_standby=on",
		"max_wal_size=512MB", "log_min_messages=fatal",
	} {
		args = append(args, "-c", setting)
	}
	s.cmd = command(s.t, "postgres", args...)
	var log bytes.Buffer
	s.cmd.Stderr = &log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(s.kill)
	err := kit.Until(s.t.Context(), kit.HangTimeout, "Postgres accepts connections", func() (bool, error) {
		conn, err := pgx.Connect(s.t.Context(), s.url("postgres"))
		if err != nil {
			return false, nil //nolint:nilerr // the server is still starting
		}
		return true, conn.Close(s.t.Context())
	})
	if err != nil {
		s.t.Fatalf("%v: %s", err, log.String())
	}
}

func (s *server) kill() {
	if s.cmd == nil {
		return
	}
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	_ = s.cmd.Wait()
	s.cmd = nil
}

func (s *server) address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

func (s *server) url(database string) string { return urlAt(s.address(), database) }

func urlAt(address, database string) string {
	return fmt.Sprintf("postgres://%s:none@%s/%s?sslmode=disable", superuser, address, database)
}

func (s *server) exec(database, sql string) {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.url(database))
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(s.t.Context())) }()
	if _, err := conn.Exec(s.t.Context(), sql); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

func (s *server) column(sql string) []string {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.url("ringfence"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(s.t.Context())) }()
	rows, err := conn.Query(s.t.Context(), sql)
	if err != nil {
		s.t.Fatal(err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		s.t.Fatal(err)
	}
	return values
}
