// Package peertest starts, watches and stops external programs for a test: SIP peers (sipp,
// baresip, kamailio, Asterisk) and audio tools.
package peertest

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"ringfence.dev/libs/testkit"
)

// hangTimeout limits each wait for a program. A program that hangs must not block the test.
const hangTimeout = testkit.Timeout

// Installed skips the test unless the programs are installed. With CI=true a missing program fails
// the test instead. Tests with peers take too long for `make test`. They are therefore always
// skipped without the build tag peers.
func Installed(t testing.TB, programs ...string) {
	t.Helper()
	if !enabled {
		t.Skip("needs go test -tags peers, as in make test-nightly")
	}
	for _, program := range programs {
		_, err := exec.LookPath(program)
		if err == nil && modulesOf(program) != "" {
			continue
		}
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is missing: `make peers` installs it", program)
		}
		t.Skipf("SKIPPED: %s is missing: `make peers` installs it", program)
	}
}

// modulesOf returns the folder in which Debian installs the modules of a program, or "".
func modulesOf(program string) string {
	where := map[string]string{"kamailio": "/usr/lib/*/kamailio/modules", "baresip": "/usr/lib/baresip/modules"}[program]
	found, err := filepath.Glob(cmp.Or(where, "/"))
	if err != nil || len(found) == 0 {
		return ""
	}
	return found[0]
}

// Port returns the first of four consecutive free ports of 127.0.0.1, for UDP and TCP.
func Port(t testing.TB) int {
	t.Helper()
	port, err := testkit.Port()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// Program is a started program.
type Program struct {
	cmd    *exec.Cmd
	mu     sync.Mutex
	output bytes.Buffer
	done   chan struct{} // closed when the program has ended, after err was set
	err    error
}

// Run starts a program. dir is the working directory and the home directory of the program.
func Run(dir, program string, args ...string) (*Program, error) {
	// The program comes from a test, not from input.
	p := &Program{cmd: exec.Command(program, args...), done: make(chan struct{})} //nolint:gosec
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, p, p
	p.cmd.Env = append(os.Environ(), "HOME="+dir, "TERM=dumb")
	// Start a new process group, so that the children can be stopped too.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.WaitDelay = 2 * time.Second
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	go func() { p.err = p.cmd.Wait(); close(p.done) }()
	return p, nil
}

// Start starts a program and stops it when the test ends. If the test fails, the output of the
// program is logged.
func Start(t testing.TB, dir, program string, args ...string) *Program {
	t.Helper()
	p, err := Run(dir, program, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Logf("output of %s: %s", program, p.Output())
		}
	})
	return p
}

// Write appends to the stored output. The program writes its output with this method.
func (p *Program) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.Write(text)
}

// Output returns the output of the program.
func (p *Program) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// Wait waits until the program has ended, and returns the program's error.
func (p *Program) Wait() error {
	<-p.done
	return p.err
}

// Ends waits until the program has ended. The test fails if the program ended with an error.
func (p *Program) Ends(t testing.TB) {
	t.Helper()
	select {
	case <-p.done:
		if p.err != nil {
			t.Errorf("%s: %v\n%s", p.cmd.Path, p.err, p.Output())
		}
	case <-time.After(hangTimeout):
		t.Errorf("%s goes on\n%s", p.cmd.Path, p.Output())
	}
}

// Listens waits until the program has opened the port of 127.0.0.1.
func (p *Program) Listens(network string, port int) error {
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	hang := time.After(hangTimeout)
	for !testkit.Open(network, port) {
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %w\n%s", p.cmd.Path, p.err, p.Output())
		case <-hang:
			return fmt.Errorf("%s does not listen at %s %d\n%s", p.cmd.Path, network, port, p.Output())
		case <-poll.C:
		}
	}
	return nil
}

// Stop ends the program and its children. It first sends SIGINT, because some programs must
// unregister at a peer.
func (p *Program) Stop() {
	_ = p.cmd.Process.Signal(os.Interrupt)
	select {
	case <-p.done:
	case <-time.After(2 * time.Second):
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}
