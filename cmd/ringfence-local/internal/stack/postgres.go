// The stack's own Postgres: its binaries, its account, its data directory, and its start after a
// killed run. createSchemas creates the schemas.

package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Superuser is the role that initdb creates.
const Superuser = "ringfence"

// Server is one Postgres of a stack.
type Server struct {
	Binaries Binaries
	Account  Account
	// Data is the data directory of the cluster.
	Data     string
	Port     int
	Password string
	// Durable keeps fsync on. Tests set it to false.
	Durable bool
	// Connections is the maximum number of connections. 0 means 200.
	Connections int
}

// Init creates the cluster if it does not exist. It creates the cluster in a temporary directory
// and renames the directory at the end. An interrupted Init therefore leaves no incomplete cluster.
func (s *Server) Init(ctx context.Context, starter *Starter) error {
	if _, err := os.Stat(filepath.Join(s.Data, "PG_VERSION")); err == nil {
		return nil
	}
	half := s.Data + ".half"
	secret := half + ".secret"
	if err := errors.Join(os.RemoveAll(half), os.RemoveAll(s.Data)); err != nil {
		return fmt.Errorf("clear %s: %w", half, err)
	}
	defer os.Remove(secret)
	if err := os.WriteFile(secret, []byte(s.Password), 0o600); err != nil {
		return fmt.Errorf("write password for initdb: %w", err)
	}
	if err := os.Mkdir(half, 0o700); err != nil {
		return fmt.Errorf("make database directory: %w", err)
	}
	if err := errors.Join(s.Account.chown(half), s.Account.chown(secret)); err != nil {
		return err
	}
	args := []string{"-D", half, "-U", Superuser, "--pwfile=" + secret, "--auth=scram-sha-256", "--encoding=UTF8", "--lc-messages=C"}
	if !s.Durable {
		args = append(args, "--no-sync")
	}
	// The locale determines the lower case of characters outside ASCII. Use the first locale that
	// this machine has.
	var output bytes.Buffer
	var err error
	for _, locale := range []string{"C.UTF-8", "en_US.UTF-8", "C"} {
		output.Reset()
		err = starter.Run(ctx, Spec{
			Name: "initdb", Path: s.Binaries.path("initdb"), Args: append([]string{"--locale=" + locale}, args...),
			Env: environment(), Dir: filepath.Dir(s.Data), Credential: s.Account.Credential,
		}, &output)
		if err == nil || !strings.Contains(output.String(), "locale") {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("initdb: %w: %s", err, lastLine(output.String()))
	}
	if err := s.sign(half); err != nil {
		return err
	}
	if err := os.Rename(half, s.Data); err != nil {
		return fmt.Errorf("put database in place: %w", err)
	}
	return nil
}

// Spec describes the server as a child process. The server is stopped in fast mode, which rolls
// back open transactions.
func (s *Server) Spec() Spec {
	settings := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(s.Port),
		"unix_socket_directories": "", // a socket path over 104 bytes fails, and no client uses a socket
		"max_connections":         strconv.Itoa(max(s.Connections, 200)),
		"fsync":                   onOff(s.Durable),
		"full_page_writes":        onOff(s.Durable),
		"synchronous_commit":      onOff(s.Durable),
		"timezone":                "UTC",
		"log_timezone":            "UTC",
		"logging_collector":       "off",
		"log_destination":         "stderr",
		"log_line_prefix":         "",
		"log_min_messages":        "fatal", // the services log their failed statements themselves
		"max_wal_size":            "256MB",
	}
	args := []string{"-D", s.Data}
	for name, value := range settings {
		args = append(args, "-c", name+"="+value)
	}
	return Spec{
		Name: "postgres", Path: s.Binaries.path("postgres"), Args: args, Env: environment(), Dir: s.Data,
		Credential: s.Account.Credential, StopSignal: syscall.SIGINT, DeathSignal: syscall.SIGINT,
		Mute: transientErrors, Before: func(ctx context.Context) error { return s.removeLeftovers(ctx) },
	}
}

// transientErrors matches the server's log lines about refused or closed connections while the
// server starts, recovers or stops. The lines are hidden, because the clients connect again.
var transientErrors = regexp.MustCompile(`FATAL:  (the database system is|terminating connection due to administrator command)|DETAIL:  Consistent recovery state|HINT:  In a moment`)

// URL returns a URL that connects to the database as the superuser.
func (s *Server) URL(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(Superuser, s.Password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)), Path: database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Await waits until the server accepts connections and creates the database if it does not exist.
func (s *Server) Await(ctx context.Context, database string) error {
	var last error
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		last = s.ensure(try, database)
		cancel()
		if last == nil {
			return nil
		}
		// The code 28P01 is invalid_password. Waiting does not help.
		if refused := new(pgconn.PgError); errors.As(last, &refused) && refused.Code == "28P01" {
			return s.passwordError()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("postgres takes no connections: %w", last)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *Server) ensure(ctx context.Context, database string) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var there bool
	if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, database).Scan(&there); err != nil {
		return fmt.Errorf("look for database %s: %w", database, err)
	}
	if there {
		return nil
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{database}.Sanitize())
	return err
}

// removeLeftovers ends the Postgres processes that a killed run left, and deletes the pid file.
func (s *Server) removeLeftovers(ctx context.Context) error {
	pidFile := filepath.Join(s.Data, "postmaster.pid")
	content, err := os.ReadFile(pidFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read postmaster.pid: %w", err)
	}
	first, _, _ := strings.Cut(string(content), "\n")
	pid, _ := strconv.Atoi(strings.TrimSpace(first))
	for _, id := range postgresProcesses(s.Data, pid) {
		// SIGINT shuts down a postmaster in fast mode. In a backend it only cancels the current
		// statement, so End kills a backend after half a second.
		timeout := 10 * time.Second
		if id.PID != pid {
			timeout = 500 * time.Millisecond
		}
		if err := End(id, syscall.SIGINT, timeout); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if err := os.Remove(pidFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove stale postmaster.pid: %w", err)
	}
	return nil
}

// postgresProcesses returns the Postgres processes that use the data directory. The postmaster is
// the first element. On a system without /proc, it returns only the process of the pid file, if
// that process runs Postgres.
func postgresProcesses(data string, postmaster int) []Identity {
	var found []Identity
	add := func(pid int) {
		if id, ok := Identify("postgres", pid); ok && Named(pid, "postgres", "postmaster") {
			found = append(found, id)
		}
	}
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	if len(links) == 0 && postmaster > 1 {
		add(postmaster)
		return found
	}
	if real, err := filepath.EvalSymlinks(data); err == nil {
		data = real
	}
	var rest []int
	for _, link := range links {
		if at, err := os.Readlink(link); err != nil || at != data {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(link)))
		if pid == postmaster {
			add(pid)
		} else {
			rest = append(rest, pid)
		}
	}
	for _, pid := range rest {
		add(pid)
	}
	return found
}

// environment returns a minimal environment, without the PG* and LC_* variables of the user.
func environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for _, line := range lines {
		if strings.Contains(line, "error:") || strings.Contains(line, "FATAL:") {
			return line
		}
	}
	return lines[len(lines)-1]
}
