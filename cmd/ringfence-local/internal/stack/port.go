// The stack chooses free loopback ports below the range of the ephemeral ports. Two stacks never
// choose the same port at the same time.

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

// The supported systems assign ephemeral ports from 32768 up. A lower port is not assigned to
// another program while a child restarts.
const lowestPort, highestPort = 20000, 32767

// Reserve reserves a port until a child process of this stack listens there. It returns false if
// another stack has reserved the port. It does not reserve ports outside the range, because the
// user chose them.
func Reserve(port int) bool {
	return port < lowestPort || port > highestPort || testkit.Claim(port)
}

// Free returns a free port that is not in taken, and reserves the port.
func Free(taken ...int) (int, error) {
	used := map[int]bool{}
	for _, p := range taken {
		used[p] = true
	}
	for range 200 {
		p := lowestPort + rand.IntN(highestPort-lowestPort+1)
		if !used[p] && Reserve(p) && IsFree(p) {
			return p, nil
		}
	}
	return 0, errors.New("no free port between 20000 and 32767 on 127.0.0.1")
}

// IsFree reports whether a listener can be opened on 127.0.0.1 and no program accepts connections
// there.
func IsFree(port int) bool {
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	// Some systems permit a listener on loopback while another program listens on all addresses.
	// A connection attempt detects that program.
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

// portReleaseTimeout is the longest time that the system needs to release the port of a killed
// program.
const portReleaseTimeout = 3 * time.Second

// AwaitFree waits until the port is free. A program that was just killed can still occupy the port.
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
		if inode := listenerInode(table, port); inode != "" {
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

// listenerInode returns the inode of the socket that listens on the port. It reads a table of the
// kernel such as /proc/net/tcp.
func listenerInode(table string, port int) string {
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
