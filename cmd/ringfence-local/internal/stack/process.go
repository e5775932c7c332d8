// Package process owns the life of child processes: their start, their prefixed output, their
// signals, their return after a crash, and the record by which a later run finds orphans. It does not
// know what they do.

package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Spec says what to run.
type Spec struct {
	// Name is the prefix of its lines.
	Name string
	Path string
	Args []string
	Env  []string
	Dir  string
	// Credential is the account it runs as; nil: ours.
	Credential *syscall.Credential
	// StopSignal asks it to end; zero: SIGTERM. DeathSignal is what the kernel sends it when we are gone (Linux);
	// zero: SIGKILL.
	StopSignal  syscall.Signal
	DeathSignal syscall.Signal
	// Drain is how much longer than others it may need to end, and what Hurry makes it cut short.
	Drain time.Duration
	// Mute drops lines that nobody can act on; nil: none.
	Mute *regexp.Regexp
	// Before runs ahead of every start, the returns after a crash included; nil: nothing.
	Before func(context.Context) error
}

// Starter starts processes on one thread that lives as long as we do: the kernel's death signal
// follows the thread that made the child, not its process.
type Starter struct{ jobs chan func() }

// NewStarter makes the thread. Close ends it, and with it (on Linux) whatever it started.
func NewStarter() *Starter {
	s := &Starter{jobs: make(chan func())}
	go s.serve(func() {})
	return s
}

// serve does the jobs on a thread of its own, which it never unlocks: the thread ends with this goroutine. The main thread
// would not, so whoever finds itself there hands over to another.
func (s *Starter) serve(settled func()) {
	runtime.LockOSThread()
	if onMainThread() {
		taken := make(chan struct{})
		go s.serve(func() { close(taken) })
		<-taken
		runtime.UnlockOSThread()
		return
	}
	settled()
	for job := range s.jobs {
		job()
	}
}

// Close ends the thread.
func (s *Starter) Close() { close(s.jobs) }

// Start runs the command; the caller waits for it.
func (s *Starter) Start(cmd *exec.Cmd) error {
	done := make(chan error)
	s.jobs <- func() { done <- cmd.Start() }
	return <-done
}

// running is one started process.
type running struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

func (s *Starter) run(spec Spec, out io.Writer) (*running, error) {
	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Env, cmd.Dir = spec.Env, spec.Dir
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = 2 * time.Second // a grandchild may hold the pipe open
	cmd.SysProcAttr = attributes(spec)
	if err := s.Start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	r := &running{cmd: cmd, done: make(chan struct{})}
	go func() {
		r.err = cmd.Wait()
		if errors.Is(r.err, exec.ErrWaitDelay) {
			r.err = nil
		}
		close(r.done)
	}()
	return r, nil
}

// Run runs a command to its end with its output going to out, ended when ctx is.
func (s *Starter) Run(ctx context.Context, spec Spec, out io.Writer) error {
	r, err := s.run(spec, out)
	if err != nil {
		return err
	}
	var once sync.Once
	for {
		select {
		case <-r.done:
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return r.err
		case <-ctx.Done():
			once.Do(func() { killGroup(r.cmd.Process.Pid) })
			<-r.done
		}
	}
}

// killGroup kills a child and whatever it started. Each child leads a group of its own, so that a
// Ctrl-C at the terminal reaches only us and the drain keeps its order.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
