// Package kit controls a running Ringfence from outside, for tests and benchmarks. It starts the
// local stack, calls its public and operator APIs, kills its processes, and receives webhooks and
// traces. It does not use the packages of the services.
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

// Demo is the content of demo.json (cmd/ringfence-local/README.md).
type Demo struct {
	BaseURL     string `json:"base_url"`
	AdminURL    string `json:"admin_url"`
	AdminToken  string `json:"admin_token"`
	SimURL      string `json:"sim_url"`
	ConsoleURL  string `json:"console_url"`
	ConsoleAPI  string `json:"console_api_url"`
	WorkspaceID string `json:"workspace_id"`
	AgentID     string `json:"agent_id"`
	WriteKey    string `json:"write_key"`
	ReadKey     string `json:"read_key"`
}

// Options are the options of Start.
type Options struct {
	// Bin is the folder of ringfence-local and the services.
	Bin string
	// Home is the folder of the stack. A second Start with the same folder continues with its data.
	Home string
	// Env is added to the environment of the stack.
	Env []string
	// Ready limits the wait until the whole stack is ready. The zero value means 90 s.
	Ready time.Duration
	// OwnProcessGroup starts the stack in its own process group, so that a Ctrl-C at the terminal
	// does not reach the stack. The caller must then stop the stack.
	OwnProcessGroup bool
}

// Stack is a running local stack.
type Stack struct {
	Demo Demo
	opts Options
	log  *os.File
	*run
}

type run struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended; err is set before
	err  error
}

var errEnded = errors.New("its process exited with status 0")

// Start starts a stack and returns when the stack can place calls. It appends the stack's output to
// Home/stack.log.
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
	s.cmd.Env = s.Environ()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: opts.OwnProcessGroup}
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

// Broker returns the broker that a stack starts: apache if the tests run on Apache Kafka
// (KAFKA_BROKERS), otherwise embedded. Stacks cannot share a broker, because tests kill it and each
// stack needs its own topics.
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

// readDemo returns false if demo.json is incomplete or older than startTime.
func (s *Stack) readDemo(path string, startTime time.Time) bool {
	info, err := os.Stat(path)
	if err != nil || info.ModTime().Before(startTime.Add(-time.Second)) {
		return false
	}
	data, err := os.ReadFile(path)
	return err == nil && json.Unmarshal(data, &s.Demo) == nil && s.Demo.BaseURL != ""
}

// Environ returns the environment in which ringfence and ringfence-local find the stack.
func (s *Stack) Environ() []string {
	return append(append(inheritedBroker(os.Environ()), "RINGFENCE_HOME="+s.opts.Home), s.opts.Env...)
}

func (s *Stack) isReady(ctx context.Context) bool {
	status, _, err := NewClient(s.Demo.BaseURL, "").Do(ctx, "GET", "/readyz", nil)
	return err == nil && status == 200
}

// AwaitReady waits until the stack can place calls.
func (s *Stack) AwaitReady(ctx context.Context, timeout time.Duration) error {
	return Until(ctx, timeout, "readyz is 200", func() (bool, error) { return s.isReady(ctx), nil })
}

// Stop stops the stack with SIGINT, as Ctrl-C does, and waits until its process has ended.
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

// Kill ends the stack and all its processes with SIGKILL at the same time.
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

// Restart starts the stack again with the same folder, after Stop or Kill.
func (s *Stack) Restart(ctx context.Context) (*Stack, error) { return Start(ctx, s.opts) }

// Command runs a command of ringfence-local beside the running stack and returns its output.
func (s *Stack) Command(ctx context.Context, args ...string) (output string, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.opts.Bin, "ringfence-local"), args...)
	cmd.Env = s.Environ()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// RunCLI runs the ringfence command line against the stack and returns its standard output. The
// error contains the standard error output.
func (s *Stack) RunCLI(ctx context.Context, stdin string, args ...string) (stdout string, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.opts.Bin, "ringfence"), args...)
	cmd.Env, cmd.Stdin = s.Environ(), strings.NewReader(stdin)
	var asides strings.Builder
	cmd.Stderr = &asides
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("ringfence %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(asides.String()))
	}
	return string(out), err
}

// Processes returns the process ids of the stack by program. The postmaster is "postgres" and the
// embedded broker is "broker". Backends of Postgres are not included.
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

// SuperuserURL returns the superuser's URL of the Postgres that the stack started.
func (s *Stack) SuperuserURL() (string, error) {
	state, err := s.state()
	if err != nil {
		return "", err
	}
	const format = "postgres://ringfence:%s@127.0.0.1:%d/ringfence?sslmode=disable"
	return fmt.Sprintf(format, state.PostgresPassword, state.Ports["postgres"]), nil
}

// PrivateAddresses returns the addresses of the private ports of a service's replicas.
func (s *Stack) PrivateAddresses(name string) (addresses []string, err error) {
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

// KillOne sends SIGKILL to one process with the given name. index selects one of several processes.
// KillOne returns false if there was no such process.
func (s *Stack) KillOne(name string, index int) bool {
	pids := s.Processes()[name]
	if len(pids) == 0 {
		return false
	}
	return syscall.Kill(pids[index%len(pids)], syscall.SIGKILL) == nil
}

// Tail returns the last lines of the stack's log, without the lines of successful requests.
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

// HangTimeout limits a wait that would otherwise hang. It is not an expected duration.
const HangTimeout = 5 * time.Minute

// Until calls cond every 50 ms until cond returns true or an error. After the timeout it calls cond
// once more. The error contains the name of the condition. Tests use HangTimeout as the timeout.
func Until(ctx context.Context, timeout time.Duration, condition string, cond func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
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
			return fmt.Errorf("not within %s: %s", timeout, condition)
		case <-tick.C:
		}
	}
}
