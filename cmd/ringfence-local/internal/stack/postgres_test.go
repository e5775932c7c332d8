package stack

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/testkit"
)

func server(t *testing.T, starter *Starter) *Server {
	t.Helper()
	s := uninitialized(t)
	if err := s.Init(t.Context(), starter); err != nil {
		t.Fatal(err)
	}
	return s
}

func uninitialized(t *testing.T) *Server {
	t.Helper()
	home, err := os.MkdirTemp("", "ringfence-postgres-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	if err := os.Chmod(home, 0o755); err != nil { // the unprivileged account must be able to read the folder
		t.Fatal(err)
	}
	account, err := ChooseAccount()
	if err != nil {
		t.Fatal(err)
	}
	binaries, err := Source{Account: account, Downloads: home, Note: t.Logf}.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	free, err := Free()
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(home, "postgres")
	return &Server{Binaries: binaries, Account: account, Data: data, Port: free, Password: "s'ecret"}
}

func await(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Timeout)
	defer cancel()
	if err := s.Await(ctx, "ringfence"); err != nil {
		t.Fatal(err)
	}
}

func TestServer_KeepsRowsAfterAKilledRun(t *testing.T) {
	starter := NewStarter()
	defer starter.Close()
	s := server(t, starter)
	spec := s.Spec()
	orphan := exec.Command(spec.Path, spec.Args...)
	// The orphan has no death signal, as on systems other than Linux.
	orphan.Dir, orphan.SysProcAttr = s.Data, s.Account.attributes()
	if err := starter.Start(orphan); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() { gone <- orphan.Wait() }()
	await(t, s)
	exec1(t, s, `CREATE TABLE kept (n int); INSERT INTO kept VALUES (42)`)

	child, err := NewSupervisor(starter, Plain(os.Stderr), filepath.Join(filepath.Dir(s.Data), "c.json")).Keep(t.Context(), spec)
	if err != nil {
		t.Fatalf("start over an orphan: %v", err)
	}
	defer child.Stop(t.Context())
	select {
	case <-gone:
	case <-time.After(testkit.Timeout):
		t.Fatal("the orphaned postmaster still runs")
	}
	await(t, s)
	conn := connect(t, s)
	var n int
	if err := conn.QueryRow(t.Context(), `SELECT n FROM kept`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	if n != 42 {
		t.Errorf("row after the restart = %d, want 42", n)
	}
}

func TestServer_StartsDespiteAStaleLockFile(t *testing.T) {
	starter := NewStarter()
	defer starter.Close()
	s := server(t, starter)
	// The process id of a killed postmaster now belongs to another program of the same account.
	otherProgram := exec.Command("sleep", "60")
	otherProgram.SysProcAttr = s.Account.attributes()
	if err := otherProgram.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = otherProgram.Process.Kill(); _ = otherProgram.Wait() }()
	lock := filepath.Join(s.Data, "postmaster.pid")
	if err := os.WriteFile(lock, []byte(strconv.Itoa(otherProgram.Process.Pid)+"\n"+s.Data+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Account.chown(lock); err != nil {
		t.Fatal(err)
	}
	child, err := NewSupervisor(starter, Plain(os.Stderr), filepath.Join(filepath.Dir(s.Data), "c.json")).Keep(t.Context(), s.Spec())
	if err != nil {
		t.Fatal(err)
	}
	defer child.Stop(t.Context())
	await(t, s)
	if child.Exits() != 0 {
		t.Errorf("Postgres ended %d times before it came up", child.Exits())
	}
	if _, alive := Identify("", otherProgram.Process.Pid); !alive {
		t.Error("a process of another program was ended")
	}
}

func TestInit_ReplacesAnIncompleteCluster(t *testing.T) {
	starter := NewStarter()
	defer starter.Close()
	s := uninitialized(t)
	// A run that was killed during initdb leaves these directories.
	for _, dir := range []string{s.Data, s.Data + ".half"} {
		if err := os.MkdirAll(filepath.Join(dir, "base"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Init(t.Context(), starter); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(s.Data + ".half*"); len(left) != 0 {
		t.Errorf("leftover folders = %v, want none", left)
	}
	if _, err := os.Stat(filepath.Join(s.Data, "PG_VERSION")); err != nil {
		t.Errorf("the cluster was not created: %v", err)
	}
}

func TestServer_RefusesConnectionsWithoutThePassword(t *testing.T) {
	starter := NewStarter()
	defer starter.Close()
	s := server(t, starter)
	child, err := NewSupervisor(starter, Plain(&strings.Builder{}), filepath.Join(filepath.Dir(s.Data), "c.json")).Keep(t.Context(), s.Spec())
	if err != nil {
		t.Fatal(err)
	}
	defer child.Stop(t.Context())
	await(t, s)
	wrong := *s
	wrong.Password = "guess"
	if conn, err := pgx.Connect(t.Context(), wrong.URL("postgres")); err == nil {
		_ = conn.Close(t.Context())
		t.Error("a wrong password was accepted")
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Timeout)
	defer cancel()
	err = wrong.Await(ctx, "ringfence")
	if err == nil {
		t.Fatal("Await with a lost password succeeded, want an error")
	}
	if want := "start with an empty database"; !strings.Contains(err.Error(), want) {
		t.Errorf("Await with a lost password = %v, want it to contain %q", err, want)
	}
	if ctx.Err() != nil {
		t.Error("Await with a lost password waited until its context ended, want an error before")
	}
}

func TestCheckHome_RenamesTheClusterOfADeletedHome(t *testing.T) {
	starter := NewStarter()
	t.Cleanup(starter.Close)
	s := server(t, starter)
	away := filepath.Join(t.TempDir(), "home")
	keeps := func(name string) {
		t.Helper()
		aside, err := s.CheckHome(t.Context(), away)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if aside != "" {
			t.Errorf("%s was set aside as %q, want it kept", name, aside)
		}
	}
	keeps("a cluster of this home")
	s.Password = "another"
	_, err := s.CheckHome(t.Context(), filepath.Dir(s.Data))
	if err == nil {
		t.Fatal("Settle with a lost password inside the home succeeded, want an error")
	}
	if want := "remove " + s.Data; !strings.Contains(err.Error(), want) {
		t.Errorf("Settle with a lost password inside the home = %v, want it to contain %q", err, want)
	}
	aside, err := s.CheckHome(t.Context(), away)
	if err != nil {
		t.Fatal(err)
	}
	if aside == "" {
		t.Fatal("a cluster of another home was kept, want it set aside")
	}
	if _, err := os.Stat(filepath.Join(aside, "PG_VERSION")); err != nil {
		t.Errorf("what was set aside is not there: %v", err)
	}
	if err := s.Init(t.Context(), starter); err != nil {
		t.Fatal(err)
	}
	keeps("the new cluster")
}

func TestHighestFirst_ReturnsTheHighestVersionFirst(t *testing.T) {
	root := t.TempDir()
	for _, version := range []string{"9.6", "15", "16"} {
		if err := os.MkdirAll(filepath.Join(root, "lib7", version, "bin"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	found := highestFirst(filepath.Join(root, "lib7", "*", "bin"))
	var want []string
	for _, version := range []string{"16", "15", "9.6"} {
		want = append(want, filepath.Join(root, "lib7", version, "bin"))
	}
	if !slices.Equal(found, want) {
		t.Errorf("highestFirst = %v, want %v", found, want)
	}
}

func connect(t *testing.T, s *Server) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL("ringfence"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec1(t *testing.T, s *Server, sql string) {
	t.Helper()
	if _, err := connect(t, s).Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}
