// Package rig drives a running Ringfence as an outsider would: it starts the local stack, speaks
// to its public and operator APIs, kills its processes, and keeps the receivers (webhooks, traces)
// that the tests and benchmarks look at. It knows nothing of the services' insides.

package kit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Demo is what the stack tells about itself in demo.json (contract.md §8).
type Demo struct {
	BaseURL     string `json:"base_url"`
	AdminURL    string `json:"admin_url"`
	AdminToken  string `json:"admin_token"`
	SimURL      string `json:"sim_url"`
	WorkspaceID string `json:"workspace_id"`
	AgentID     string `json:"agent_id"`
	WriteKey    string `json:"write_key"`
	ReadKey     string `json:"read_key"`
}

// Options says how to start a stack.
type Options struct {
	// Bin holds ringfence-local and the service binaries.
	Bin string
	// Home is the stack's state folder; a second Start with it continues where the first was.
	Home string
	// Env is added to the process's environment.
	Env []string
	// Ready bounds the wait for the whole stack; zero: 90 s.
	Ready time.Duration
	// Apart keeps a Ctrl-C at the terminal from the stack: whoever started it stops it.
	Apart bool
}

// Stack is a running local stack.
type Stack struct {
	Demo Demo
	opts Options
	log  *os.File
	*run
}

// run is one process of a stack: a Stack that is started again has the next.
type run struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended, with err
	err  error
}

var errEnded = errors.New("it stopped by itself")

// Start starts a stack and returns once calls can be placed. Its output is appended to Home/stack.log.
func Start(ctx context.Context, opts Options) (*Stack, error) {
	if opts.Ready == 0 {
		opts.Ready = 90 * time.Second
	}
	if err := os.MkdirAll(opts.Home, 0o755); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(opts.Home, "stack.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	s := &Stack{opts: opts, log: log, run: &run{done: make(chan struct{})}}
	s.cmd = exec.Command(filepath.Join(opts.Bin, "ringfence-local"), "up")
	s.cmd.Env = append(append(inheritedBroker(os.Environ()), "RINGFENCE_HOME="+opts.Home), opts.Env...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: opts.Apart}
	started := time.Now()
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the stack: %w", err)
	}
	go func(r *run) { r.err = r.cmd.Wait(); close(r.done) }(s.run)
	if err := s.awaitReady(ctx, started); err != nil {
		s.Kill()
		return nil, fmt.Errorf("%w; the end of its log:\n%s", err, s.Tail(40))
	}
	return s, nil
}

// Broker is which one a stack brings, embedded or apache: where the tests run on Apache Kafka (KAFKA_BROKERS, see libs/testkit/kafkatest), each stack has one of its own.
// Two would do each other's work, and tests kill it.
func Broker() string {
	if os.Getenv("KAFKA_BROKERS") != "" {
		return "apache"
	}
	return cmp.Or(os.Getenv("RINGFENCE_BROKER"), "embedded")
}

func inheritedBroker(env []string) []string {
	env = slices.DeleteFunc(env, func(variable string) bool { return strings.HasPrefix(variable, "KAFKA_BROKERS=") })
	return append(env, "RINGFENCE_BROKER="+Broker())
}

func (s *Stack) awaitReady(ctx context.Context, started time.Time) error {
	path := filepath.Join(s.opts.Home, "demo.json")
	return Until(ctx, s.opts.Ready, "the stack is ready", func() (bool, error) {
		select {
		case <-s.done:
			return false, fmt.Errorf("the stack ended before it was ready: %w", cmp.Or(s.err, errEnded))
		default:
		}
		return s.readDemo(path, started) && s.isReady(ctx), nil
	})
}

// readDemo says whether demo.json is there, whole, and of this start.
func (s *Stack) readDemo(path string, started time.Time) bool {
	info, err := os.Stat(path)
	if err != nil || info.ModTime().Before(started.Add(-time.Second)) {
		return false
	}
	data, err := os.ReadFile(path)
	return err == nil && json.Unmarshal(data, &s.Demo) == nil && s.Demo.BaseURL != ""
}

func (s *Stack) isReady(ctx context.Context) bool {
	status, _, err := NewClient(s.Demo.BaseURL, "").Do(ctx, "GET", "/readyz", nil)
	return err == nil && status == 200
}

// AwaitReady waits until calls can be placed end to end (again).
func (s *Stack) AwaitReady(ctx context.Context, within time.Duration) error {
	return Until(ctx, within, "readyz is 200", func() (bool, error) { return s.isReady(ctx), nil })
}

// Stop asks the stack to end, as Ctrl-C does, and waits.
func (s *Stack) Stop() error {
	defer s.log.Close()
	_ = s.cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-s.done:
		return s.err
	case <-time.After(60 * time.Second):
		s.Kill()
		return fmt.Errorf("the stack did not stop within 60 s; the end of its log:\n%s", s.Tail(40))
	}
}

// Kill ends the stack and everything it started with SIGKILL, all at once.
func (s *Stack) Kill() {
	victims := []int{s.cmd.Process.Pid}
	for _, pids := range s.Processes() {
		victims = append(victims, pids...)
	}
	for _, pid := range victims {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-s.done
}

// Again starts the stack anew in the same home, after Stop or Kill.
func (s *Stack) Again(ctx context.Context) (*Stack, error) { return Start(ctx, s.opts) }

// Command runs a command of ringfence-local beside the running stack and says what it printed.
func (s *Stack) Command(ctx context.Context, args ...string) (said string, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.opts.Bin, "ringfence-local"), args...)
	cmd.Env = append(append(inheritedBroker(os.Environ()), "RINGFENCE_HOME="+s.opts.Home), s.opts.Env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Operate runs the operator's command line against the stack and says what it answered; its asides are in the error.
func (s *Stack) Operate(ctx context.Context, stdin string, args ...string) (said string, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.opts.Bin, "ringfence"), args...)
	cmd.Env, cmd.Stdin = append(append(inheritedBroker(os.Environ()), "RINGFENCE_HOME="+s.opts.Home), s.opts.Env...), strings.NewReader(stdin)
	var asides strings.Builder
	cmd.Stderr = &asides
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("ringfence %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(asides.String()))
	}
	return string(out), err
}

// Processes lists what the stack runs: program name to process ids. The postmaster is
// "postgres", the embedded broker is "broker"; Postgres' own backends are not listed.
func (s *Stack) Processes() map[string][]int {
	out, err := exec.Command("ps", "-axo", "pid=,ppid=,args=").Output()
	if err != nil {
		return nil
	}
	found := map[string][]int{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[1] != strconv.Itoa(s.cmd.Process.Pid) {
			continue
		}
		pid, err := strconv.Atoi(fields[0])
		if err != nil {
			continue
		}
		name := filepath.Base(fields[2])
		if name == "ringfence-local" && len(fields) > 3 {
			name = fields[3]
		}
		found[name] = append(found[name], pid)
	}
	return found
}

// state is the part of state.json that tests read.
type state struct {
	Ports            map[string]int
	PostgresPassword string `json:"postgres_password"`
}

func (s *Stack) state() (read state, err error) {
	data, err := os.ReadFile(filepath.Join(s.opts.Home, "state.json"))
	if err != nil {
		return state{}, err
	}
	err = json.Unmarshal(data, &read)
	return read, err
}

// SuperuserURL returns the URL of the Postgres that the stack started.
func (s *Stack) SuperuserURL() (string, error) {
	state, err := s.state()
	if err != nil {
		return "", err
	}
	const format = "postgres://ringfence:%s@127.0.0.1:%d/ringfence?sslmode=disable"
	return fmt.Sprintf(format, state.PostgresPassword, state.Ports["postgres"]), nil
}

// Privates returns the addresses of the private ports of a service's replicas.
func (s *Stack) Privates(name string) (addresses []string, err error) {
	state, err := s.state()
	if err != nil {
		return nil, err
	}
	for replica := 1; ; replica++ {
		port := state.Ports[fmt.Sprintf("%s private %d", name, replica)]
		if port == 0 {
			return addresses, nil
		}
		addresses = append(addresses, fmt.Sprintf("127.0.0.1:%d", port))
	}
}

// KillOne sends SIGKILL to one process of the given name and reports whether there was one.
func (s *Stack) KillOne(name string, pick int) bool {
	pids := s.Processes()[name]
	if len(pids) == 0 {
		return false
	}
	return syscall.Kill(pids[pick%len(pids)], syscall.SIGKILL) == nil
}

// Tail is the end of the stack's log, requests that went well left out.
func (s *Stack) Tail(lines int) string {
	data, _ := os.ReadFile(filepath.Join(s.opts.Home, "stack.log"))
	var all []string
	for line := range strings.Lines(string(data)) {
		if !strings.Contains(line, " INFO ") {
			all = append(all, strings.TrimRight(line, "\n"))
		}
	}
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// HangTimeout ends a wait that would otherwise hang. It does not state how soon the condition is true.
const HangTimeout = 5 * time.Minute

// Until calls cond every 50 ms until it returns true or an error. After the timeout it calls cond once more and returns
// an error that names what was awaited. Tests use HangTimeout.
func Until(ctx context.Context, within time.Duration, what string, cond func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := cond()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			if ok, err := cond(); ok || err != nil {
				return err
			}
			return fmt.Errorf("not within %s: %s", within, what)
		case <-tick.C:
		}
	}
}
