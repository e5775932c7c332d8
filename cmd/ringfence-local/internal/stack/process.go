// Child processes: their start, prefixed output, signals, restart after a crash, and the file by
// which a later run finds orphaned processes.

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

// Spec describes a child process.
type Spec struct {
	// Name is the prefix of the lines that the process prints.
	Name string
	Path string
	Args []string
	Env  []string
	Dir  string
	// Credential is the account that runs the process. Nil means the user of this process.
	Credential *syscall.Credential
	// StopSignal stops the process. 0 means SIGTERM. The kernel sends DeathSignal to the process
	// when ringfence-local dies (Linux only). 0 means SIGKILL.
	StopSignal  syscall.Signal
	DeathSignal syscall.Signal
	// Drain is added to the time limit of a stop, so that the process can finish its calls.
	// Child.Hurry ends the additional time.
	Drain time.Duration
	// Mute matches the lines that are dropped. If it is nil, no line is dropped.
	Mute *regexp.Regexp
	// Before runs before every start of the process, also after a crash. It can be nil.
	Before func(context.Context) error
}

// Starter starts all child processes on one thread that lives as long as this process. The kernel
// sends the death signal to a child when the thread that created the child ends.
type Starter struct{ jobs chan func() }

// NewStarter starts the thread of a Starter. The caller must call Close to end the thread.
func NewStarter() *Starter {
	s := &Starter{jobs: make(chan func())}
	go s.serve(func() {})
	return s
}

// serve runs the jobs on its own thread, which ends when this goroutine ends.
func (s *Starter) serve(onReady func()) {
	runtime.LockOSThread()
	if onMainThread() {
		// The main thread never ends. Run the jobs on another thread.
		taken := make(chan struct{})
		go s.serve(func() { close(taken) })
		<-taken
		runtime.UnlockOSThread()
		return
	}
	onReady()
	for job := range s.jobs {
		job()
	}
}

// Close ends the thread.
func (s *Starter) Close() { close(s.jobs) }

// Start starts the command. The caller must wait for the end of the command.
func (s *Starter) Start(cmd *exec.Cmd) error {
	done := make(chan error)
	s.jobs <- func() { done <- cmd.Start() }
	return <-done
}

type running struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

func (s *Starter) run(spec Spec, out io.Writer) (*running, error) {
	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Env, cmd.Dir = spec.Env, spec.Dir
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = 2 * time.Second // a grandchild can keep the pipe open
	cmd.SysProcAttr = processAttributes(spec)
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

// Run runs a command to its end and writes the command's output to out. It stops the command when
// ctx ends.
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

// killGroup kills a child and all other processes in its process group.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
