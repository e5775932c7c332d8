// The stack chooses free loopback ports below the range from which the system assigns ephemeral
// ports. No other stack chooses the same port at the same time.

package stack

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"ringfence.dev/libs/testkit"
)

// The supported systems assign ephemeral ports from 32768 up. A lower port stays free while a child
// restarts.
const lowest, highest = 20000, 32767

// Reserve reserves a port against other stacks until its child listens there. It reports whether no
// other stack had reserved it. Ports outside the range were set by the user and are not reserved.
func Reserve(port int) bool {
	return port < lowest || port > highest || testkit.Claim(port)
}

// Free returns a free port, other than those given, and reserves it.
func Free(taken ...int) (int, error) {
	used := map[int]bool{}
	for _, p := range taken {
		used[p] = true
	}
	for range 200 {
		p := lowest + rand.IntN(highest-lowest+1)
		if !used[p] && Reserve(p) && IsFree(p) {
			return p, nil
		}
	}
	return 0, errors.New("no free port between 20000 and 32767 on 127.0.0.1")
}

// IsFree reports whether a listener can be opened on 127.0.0.1 and no program answers there.
func IsFree(port int) bool {
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	// Some systems permit a listener on loopback beside a wildcard listener, so try to connect.
	if conn, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
		_ = conn.Close()
		return false
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	return ln.Close() == nil
}

// portReleaseTimeout is how long a killed program can need to release its port.
const portReleaseTimeout = 3 * time.Second

// AwaitFree waits until the port is free, because a program that was just killed can still hold it.
func AwaitFree(ctx context.Context, port int) bool {
	ctx, cancel := context.WithTimeout(ctx, portReleaseTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !IsFree(port) {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// Holder describes the process that listens on the port, for example "nginx (pid 42)".
func Holder(port int) string {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if inode := listener(table, port); inode != "" {
			if who := holding("socket:[" + inode + "]"); who != "" {
				return who
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "lsof", "-nP", "-iTCP:"+strconv.Itoa(port), "-sTCP:LISTEN", "-Fpc").Output()
	if err == nil {
		var pid, name string
		for line := range strings.Lines(string(out)) {
			switch {
			case strings.HasPrefix(line, "p"):
				pid = strings.TrimSpace(line[1:])
			case strings.HasPrefix(line, "c"):
				name = strings.TrimSpace(line[1:])
			}
		}
		if pid != "" {
			return fmt.Sprintf("%s (pid %s)", name, pid)
		}
	}
	return "another program"
}

// listener returns the inode of the socket that listens on the port, from a table of the kernel.
func listener(table string, port int) string {
	content, err := os.ReadFile(table)
	if err != nil {
		return ""
	}
	const listening = "0A"
	suffix := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) > 9 && fields[3] == listening && strings.HasSuffix(fields[1], suffix) {
			return fields[9]
		}
	}
	return ""
}

func holding(socket string) string {
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, file := range files {
		if at, err := os.Readlink(file); err == nil && at == socket {
			dir := filepath.Dir(filepath.Dir(file))
			name, _ := os.ReadFile(filepath.Join(dir, "comm"))
			return fmt.Sprintf("%s (pid %s)", strings.TrimSpace(string(name)), filepath.Base(dir))
		}
	}
	return ""
}
