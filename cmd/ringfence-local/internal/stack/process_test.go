package stack

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ringfence.dev/test/kit"
)

type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	if err := kit.Until(t.Context(), kit.HangTimeout, what, func() (bool, error) { return cond(), nil }); err != nil {
		t.Fatal(err)
	}
}

func supervisor(t *testing.T) (*Supervisor, *screen, string) {
	t.Helper()
	starter := NewStarter()
	t.Cleanup(starter.Close)
	out, record := &screen{}, filepath.Join(t.TempDir(), "children.json")
	return NewSupervisor(starter, Plain(out), record), out, record
}

func shell(name, script string) Spec {
	return Spec{Name: name, Path: "/bin/sh", Args: []string{"-c", script}, Env: os.Environ()}
}

// endedContext returns a context that has already ended. With this context, Stop kills a process
// that does not stop immediately.
func endedContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestKeep_RestartsAChildThatEndsAndPrintsTheRestart(t *testing.T) {
	procs, out, record := supervisor(t)
	child, err := procs.Keep(t.Context(), shell("calls", "echo up; exec sleep 60"))
	if err != nil {
		t.Fatal(err)
	}
	defer child.Stop(endedContext())
	first := child.PID()
	up := func(times int) func() bool {
		return func() bool { return strings.Count(out.String(), "calls                | up\n") == times }
	}
	until(t, "the child has printed a line", up(1))
	until(t, "the list of children contains the child", func() bool { return len(Orphans(record)) == 1 })
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "another process runs", func() bool { return child.PID() != 0 && child.PID() != first })
	until(t, "the line of the new process is printed", up(2))
	if want := "calls ended unexpectedly (signal: killed); starting it again\n"; !strings.Contains(out.String(), want) {
		t.Errorf("output = %q, want it to contain %q", out, want)
	}
	until(t, "the list of children contains the new process", func() bool {
		alive := Orphans(record)
		return len(alive) == 1 && alive[0].PID == child.PID()
	})
}

func TestStop_KillsAChildThatIgnoresTheSignal(t *testing.T) {
	procs, out, record := supervisor(t)
	polite, err := procs.Keep(t.Context(), shell("polite", `trap 'echo drained; exit 0' TERM; echo up; while :; do sleep 0.01; done`))
	if err != nil {
		t.Fatal(err)
	}
	deaf, err := procs.Keep(t.Context(), shell("deaf", `trap '' TERM; echo up; while :; do sleep 0.01; done`))
	if err != nil {
		t.Fatal(err)
	}
	until(t, "both children have started", func() bool { return strings.Count(out.String(), "| up") == 2 })
	polite.Stop(t.Context())
	if !strings.Contains(out.String(), "polite               | drained") {
		t.Errorf("the child received no stop signal: %q", out)
	}
	deaf.Stop(endedContext())
	if strings.Contains(out.String(), "starting it again") {
		t.Errorf("a stopped child came back: %q", out)
	}
	if left := Orphans(record); len(left) != 0 {
		t.Errorf("the record still names %v", left)
	}
}

func TestOrphans_ReturnsOnlyProcessesOfTheKilledRun(t *testing.T) {
	orphan := exec.Command("sleep", "60")
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() { gone <- orphan.Wait() }()
	id, ok := Identify("calls", orphan.Process.Pid)
	if !ok {
		t.Fatal("a running process has no identity")
	}
	reusedPID := id
	reusedPID.Started = "another boot/1" // simulates a process id that now belongs to another program
	dead := Identity{Name: "dialer", PID: 1 << 30, Started: id.Started}
	record := filepath.Join(t.TempDir(), "children.json")
	if err := writeRecord(record, []Identity{reusedPID, dead, id}); err != nil {
		t.Fatal(err)
	}
	found := Orphans(record)
	if want := []Identity{id}; !slices.Equal(found, want) {
		t.Fatalf("Orphans = %v, want %v", found, want)
	}
	if err := End(found[0], syscall.SIGKILL, kit.HangTimeout); err != nil {
		t.Fatal(err)
	}
	<-gone
	if id.Alive() {
		t.Error("the orphan still lives")
	}
}

func TestOrphans_ReturnsNoProcessIfTheListFileIsIncomplete(t *testing.T) {
	record := filepath.Join(t.TempDir(), "children.json")
	if err := os.WriteFile(record, []byte(`[{"name":"calls","pid":1`), 0o600); err != nil {
		t.Fatal(err)
	}
	if found := Orphans(record); len(found) != 0 {
		t.Errorf("Orphans = %v, want none", found)
	}
}

func TestStarter_CloseEndsItsChildren(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("only Linux has a death signal")
	}
	starter := NewStarter()
	r, err := starter.run(shell("calls", "exec sleep 60"), &screen{})
	if err != nil {
		t.Fatal(err)
	}
	starter.Close()
	select {
	case <-r.done:
	case <-time.After(kit.HangTimeout):
		_ = r.cmd.Process.Kill()
		t.Error("the child outlived the thread that started it")
	}
}

func TestConsole_NeverMixesLines(t *testing.T) {
	out := &screen{}
	console := Plain(out)
	a, b := console.Writer("a", nil), console.Writer("b", regexp.MustCompile("^noise"))
	for _, piece := range []string{"one ", "line", "\n"} {
		_, _ = a.Write([]byte(piece))
		_, _ = b.Write([]byte("whole\nhalf"))
	}
	if want := "a                    | one line\n"; !strings.Contains(out.String(), want) {
		t.Errorf("output %q lacks %q", out, want)
	}
	_, _ = b.Write([]byte("\nnoise\n"))
	if strings.Contains(out.String(), "noise") {
		t.Errorf("a muted line was printed: %q", out)
	}
	_, _ = b.Write(bytes.Repeat([]byte("x"), 2*maxLine))
	for line := range strings.Lines(out.String()) {
		if len(line) > maxLine+32 {
			t.Errorf("a line of %d bytes was held back", len(line))
		}
	}
}

// The kernel delivers two equal pending signals as one. The test halts the child until both signals
// are pending.
func TestHurry_ChildReceivesTwoSeparateSignals(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("reads pending signals from /proc")
	}
	s, out, _ := supervisor(t)
	script := `n=0; trap 'n=$((n+1)); echo "signal $n"' TERM INT; echo ready; while [ $n -lt 2 ]; do sleep 0.05; done`
	c, err := s.Keep(t.Context(), shell("dialer", script))
	if err != nil {
		t.Fatalf("Keep: %v", err)
	}
	until(t, "the child is ready", func() bool { return strings.Contains(out.String(), "ready") })
	pid := c.PID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("suspend the child: %v", err)
	}
	stopped := make(chan struct{})
	stopCtx, cancel := context.WithTimeout(context.Background(), kit.HangTimeout)
	defer cancel()
	go func() {
		defer close(stopped)
		c.Stop(stopCtx)
	}()
	until(t, "the first signal is pending", func() bool {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		return err == nil && !bytes.Contains(status, []byte("ShdPnd:\t0000000000000000"))
	})
	c.Hurry()
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatalf("resume the child: %v", err)
	}
	<-stopped
	if got := out.String(); !strings.Contains(got, "signal 2") {
		t.Errorf("output = %q, want it to contain %q", got, "signal 2")
	}
}
