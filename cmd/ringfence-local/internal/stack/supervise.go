package stack

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// The first pause before a restart is firstPause. Each further pause is twice as long, up to
// longestPause. If a child has run for settledTime, its next pause is firstPause again.
const (
	firstPause   = 200 * time.Millisecond
	longestPause = 5 * time.Second
	settledTime  = 10 * time.Second
)

// Supervisor restarts children that end, and writes the list of the running ones to a file.
type Supervisor struct {
	// Longest is the longest pause between restarts, 5 s by default. Set it before the first call of
	// Keep.
	Longest time.Duration

	starter *Starter
	console *Console
	record  string

	mu   sync.Mutex
	live []Identity
}

// NewSupervisor returns a supervisor. recordPath is the path of the file for the list of the
// running children.
func NewSupervisor(starter *Starter, console *Console, recordPath string) *Supervisor {
	return &Supervisor{Longest: longestPause, starter: starter, console: console, record: recordPath}
}

// Child is one process that runs until it is stopped.
type Child struct {
	spec   Spec
	owner  *Supervisor
	cancel context.CancelFunc
	// finished is closed when the child has ended and will not be restarted.
	finished chan struct{}
	quit     chan struct{} // closed when the process must be killed
	once     sync.Once

	mu    sync.Mutex
	pid   int
	exits int
}

// Keep starts the child and restarts it whenever it ends, until Stop is called. It returns the
// error of the first start. Later errors are printed, and the start is repeated.
func (s *Supervisor) Keep(ctx context.Context, spec Spec) (*Child, error) {
	alive, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &Child{spec: spec, owner: s, cancel: cancel, quit: make(chan struct{}), finished: make(chan struct{})}
	out := s.console.Writer(spec.Name, spec.Mute)
	start := func() (*running, error) {
		if spec.Before != nil {
			if err := spec.Before(alive); err != nil {
				return nil, err
			}
		}
		r, err := s.starter.run(spec, out)
		if err == nil {
			s.born(c, r.cmd.Process.Pid)
		}
		return r, err
	}
	first, err := start()
	if err != nil {
		cancel()
		return nil, err
	}
	go c.keep(alive, first, start)
	return c, nil
}

func (c *Child) keep(ctx context.Context, r *running, start func() (*running, error)) {
	defer close(c.finished)
	pause := firstPause
	for {
		began := time.Now()
		if r != nil {
			stopped := c.awaitExit(ctx, r)
			c.owner.died(c, r.cmd.Process.Pid)
			if stopped {
				return
			}
			if time.Since(began) > settledTime {
				pause = firstPause
			}
			c.owner.console.Say("%s ended unexpectedly (%s); starting it again", c.spec.Name, reason(r.err))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, c.owner.Longest)
		var err error
		if r, err = start(); err != nil {
			c.owner.console.Say("%s did not start: %v", c.spec.Name, err)
		}
	}
}

// awaitExit waits until the process ends. It returns true if the process ended because of Stop.
func (c *Child) awaitExit(ctx context.Context, r *running) bool {
	select {
	case <-r.done:
		return ctx.Err() != nil
	case <-ctx.Done():
	}
	ask := c.spec.StopSignal
	if ask == 0 {
		ask = syscall.SIGTERM
	}
	_ = r.cmd.Process.Signal(ask)
	select {
	case <-r.done:
	case <-c.quit:
		killGroup(r.cmd.Process.Pid)
		<-r.done
	}
	return true
}

// Stop stops the child and waits for its end. It kills the child when ctx ends. Stop can be called
// several times.
func (c *Child) Stop(ctx context.Context) {
	c.cancel()
	select {
	case <-c.finished:
	case <-ctx.Done():
		c.once.Do(func() { close(c.quit) })
		<-c.finished
	}
}

// Drain returns the field Drain of the child's Spec.
func (c *Child) Drain() time.Duration { return c.spec.Drain }

// Hurry sends SIGINT to a child to which Stop has sent SIGTERM. The child must count both signals
// as stop signals. Hurry does not send SIGTERM again: the kernel delivers two pending SIGTERM
// signals as one.
func (c *Child) Hurry() {
	if pid := c.PID(); pid > 0 {
		_ = syscall.Kill(pid, syscall.SIGINT)
	}
}

// Exits returns how often the child ended without Stop.
func (c *Child) Exits() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exits
}

// PID returns the process id, or 0 while the child is not running.
func (c *Child) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid
}

func (s *Supervisor) born(c *Child, pid int) {
	c.mu.Lock()
	c.pid = pid
	c.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok := Identify(c.spec.Name, pid)
	if !ok {
		return // the child has already ended
	}
	s.live = append(s.live, id)
	if err := writeRecord(s.record, s.live); err != nil {
		s.console.Say("the list of running processes could not be written (%v); if this run is killed, the next start "+
			"does not find %s", err, c.spec.Name)
	}
}

func (s *Supervisor) died(c *Child, pid int) {
	c.mu.Lock()
	c.pid = 0
	c.exits++
	c.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = slices.DeleteFunc(s.live, func(id Identity) bool { return id.PID == pid })
	if err := writeRecord(s.record, s.live); err != nil {
		s.console.Say("the list of running processes could not be written: %v", err)
	}
}

func reason(err error) string {
	var exit *exec.ExitError
	if err == nil {
		return "exit 0"
	}
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return "signal: " + status.Signal().String()
		}
		return fmt.Sprintf("exit %d", exit.ExitCode())
	}
	return err.Error()
}

// Name returns the prefix of the lines that the child prints.
func (c *Child) Name() string { return c.spec.Name }
