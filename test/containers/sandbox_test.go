package containers_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/test/kit"
)

// TestSandbox_InterruptLeavesNothingBehind interrupts the sandbox as Ctrl-C does, while Docker
// Engine has its own network, and kernel settings, files of the machine and temporary files are
// changed.
func TestSandbox_InterruptLeavesNothingBehind(t *testing.T) {
	const change = "docker network create test; for file in /run/settings/*; do echo 1 > $file; done; " +
		"touch /etc/sandbox-test /var/sandbox-test; mktemp -d -t sandbox-test-XXXXXX; mkdir context.test; "
	interruptSandbox(t, "cd $FOLDER; "+change+"touch ready; sleep 600", "ready")
}

// TestSandboxCluster_InterruptLeavesNothingBehind interrupts the sandbox while a cluster starts.
// Its API server and containerd run then, and it has its control groups and network interfaces.
func TestSandboxCluster_InterruptLeavesNothingBehind(t *testing.T) {
	const start = "cd ../..; test/containers/cluster.sh $FOLDER/cluster $RINGFENCE_BIN/tools/kubernetes || sleep 600"
	interruptSandbox(t, start, "cluster/containerd.log")
}

// interruptSandbox runs a shell command in a sandbox with the folder $FOLDER. It interrupts the
// sandbox when the file exists in this folder.
func interruptSandbox(t *testing.T, command, file string) {
	t.Helper()
	if bin == "" || os.Getenv("SANDBOX") != "" {
		t.Skip("`make test-containers` and `make test-cluster` run this outside of the sandbox")
	}
	folder := t.TempDir()
	before := machineState(t)
	cmd := exec.CommandContext(t.Context(), "./sandbox.sh", folder, "sh", "-euc", command)
	cmd.Env = append(os.Environ(), "FOLDER="+folder)
	// Processes that remain would keep a pipe open, and the test would wait for them.
	output, err := os.Create(filepath.Join(folder, "output"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // no process remains unless the test fails
		_ = output.Close()
	})
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	err = kit.Until(t.Context(), kit.HangTimeout, "the sandbox runs", func() (bool, error) {
		select {
		case err := <-ended:
			return false, fmt.Errorf("the sandbox ended: %w: %s", err, printed(output))
		default:
			_, err := os.Stat(filepath.Join(folder, file))
			return err == nil, nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("ringfence-%d", cmd.Process.Pid)
	if got := processesOf(t, name); len(got) < 3 {
		t.Errorf("processes = %q, want the engine and the command", got)
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := <-ended; !errors.As(err, &exit) || exit.ExitCode() != 130 {
		t.Errorf("sandbox.sh ended with %v, want exit status 130: %s", err, printed(output))
	}
	if got := processesOf(t, name); len(got) > 0 {
		t.Errorf("processes = %q, want none", got)
	}
	if diff := cmp.Diff(before, machineState(t)); diff != "" {
		t.Errorf("the machine after the sandbox (-before +after):\n%s", diff)
	}
	if contexts, err := filepath.Glob(filepath.Join(folder, "context.*")); err != nil || len(contexts) > 0 {
		t.Errorf("contexts of builds = %q (%v), want none", contexts, err)
	}
}

func printed(file *os.File) []byte {
	text, _ := os.ReadFile(file.Name())
	return text
}

// machineState returns what Docker Engine and a cluster change on a machine.
func machineState(t *testing.T) map[string][]string {
	t.Helper()
	state := map[string][]string{}
	for name, command := range map[string]string{
		"interfaces":         "ip -brief link",
		"network namespaces": "ip netns list",
		"packet filter":      "iptables-save | grep -v '^#'",
		"mounts":             "cut -d ' ' -f 3- /proc/self/mountinfo",
		"folders":            "ls -A /opt /root /usr/libexec /var /var/lib /var/log",
		"settings files":     "find /etc -maxdepth 2",
		"temporary files":    "find \"${TMPDIR:-/tmp}\" -maxdepth 1 -name 'sandbox-test-*'",
		"control groups":     "find /sys/fs/cgroup -type d -name 'ringfence-*'",
		"settings": "grep -H . /proc/sys/vm/overcommit_memory /proc/sys/vm/panic_on_oom /proc/sys/kernel/panic " +
			"/proc/sys/kernel/panic_on_oops /proc/sys/kernel/keys/root_max*",
	} {
		out := mustRun(t, "sh", "-c", "PATH=$PATH:/usr/sbin:/sbin; set -e; "+command+" || [ $? = 1 ]")
		out = regexp.MustCompile(`\[\d+:\d+\]`).ReplaceAllString(out, "") // counters of packets
		state[name] = strings.Split(strings.TrimSpace(out), "\n")
		slices.Sort(state[name])
	}
	return state
}

// processesOf returns the processes with a sandbox in their environment.
func processesOf(t *testing.T, sandbox string) (found []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		environment, err := os.ReadFile(file) // the process may have ended
		if err == nil && slices.Contains(strings.Split(string(environment), "\x00"), "SANDBOX="+sandbox) {
			command, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
			found = append(found, strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return found
}
