package signaltest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"ringfence.dev/libs/loopback"
)

// Peer is a real SIP program: sipp, baresip or kamailio.
type Peer struct {
	t   testing.TB
	cmd *exec.Cmd
	mu  sync.Mutex
	out bytes.Buffer
	end chan error
}

// Installed says whether a program is here. Where it is not, the test is skipped, and fails when CI is true: make test installs the peers where it can.
func Installed(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is not installed: apt-get install sip-tester baresip-core kamailio", program)
	}
	t.Skipf("SKIPPED: %s is not installed (apt-get install sip-tester baresip-core kamailio)", program)
}

// Start runs a program until the test ends.
func Start(t testing.TB, dir, program string, args ...string) *Peer {
	t.Helper()
	Installed(t, program)
	p := &Peer{t: t, cmd: exec.Command(program, args...), end: make(chan error, 1)} //nolint:gosec // a test peer
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}                         // with those that it starts itself
	p.cmd.WaitDelay = 2 * time.Second
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, p, p
	p.cmd.Env = append(os.Environ(), "HOME="+dir, "TERM=dumb")
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", program, err)
	}
	go func() { p.end <- p.cmd.Wait() }()
	t.Cleanup(p.Stop)
	return p
}

// Write keeps what the program says.
func (p *Peer) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(text)
}

// Said is all that the program said.
func (p *Peer) Said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// Ends waits for the program's end, which must be a good one.
func (p *Peer) Ends() {
	p.t.Helper()
	select {
	case err := <-p.end:
		p.end <- err
		if err != nil {
			p.t.Errorf("%s: %v\n%s", p.cmd.Path, err, p.Said())
		}
	case <-time.After(3 * Patience):
		p.t.Errorf("%s goes on\n%s", p.cmd.Path, p.Said())
	}
}

// Stop ends the program, and all that it started.
func (p *Peer) Stop() {
	_ = p.cmd.Process.Signal(os.Interrupt)
	select {
	case err := <-p.end:
		p.end <- err
	case <-time.After(2 * time.Second):
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	err := <-p.end
	p.end <- err
}

// FreePort is one of the loopback that nobody has, for UDP and TCP, and the next three as well.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := loopback.Port()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// Listens waits until a program has a port of the loopback.
func (p *Peer) Listens(ctx context.Context, network string, port int) {
	p.t.Helper()
	for begun := time.Now(); time.Since(begun) < Patience && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) { // a poll of the condition
		if loopback.Open(network, port) {
			return
		}
		select {
		case err := <-p.end:
			p.end <- err
			p.t.Fatalf("%s ended: %v\n%s", p.cmd.Path, err, p.Said())
		default:
		}
	}
	p.t.Fatalf("%s does not listen at %s %d\n%s", p.cmd.Path, network, port, p.Said())
}
