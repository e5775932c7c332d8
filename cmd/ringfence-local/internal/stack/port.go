// Package port owns the choice of loopback ports: free ones below the range from which the system
// hands out its own, which no other stack chooses at the same time, and who sits on a taken one.

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

// The systems that we run on hand out ephemeral ports from 32768 up: a port below stays ours while a
// child is between two lives.
const lowest, highest = 20000, 32767

// Claim keeps a port of ours from every stack that is started before its own children listen there; it says whether nobody else did. Ports outside the range
// were given, and are whoever's gave them.
func Claim(port int) bool {
	return port < lowest || port > highest || testkit.Claim(port)
}

// Free chooses and claims a port that nobody listens on, other than those given.
func Free(taken ...int) (int, error) {
	used := map[int]bool{}
	for _, p := range taken {
		used[p] = true
	}
	for range 200 {
		p := lowest + rand.IntN(highest-lowest+1)
		if !used[p] && Claim(p) && IsFree(p) {
			return p, nil
		}
	}
	return 0, errors.New("no free port between 20000 and 32767 on 127.0.0.1")
}

// IsFree says whether a listener could be opened on 127.0.0.1, and nobody answers there.
func IsFree(port int) bool {
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	// Some systems let a loopback address be bound beside a wildcard listener: asking tells.
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

// dying is how long a program that was killed may need until its port is free.
const dying = 3 * time.Second

// Frees is IsFree with patience for a holder that is just ending: whoever starts again in the instant after a SIGKILL
// meets it.
func Frees(ctx context.Context, port int) bool {
	ctx, cancel := context.WithTimeout(ctx, dying)
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

// Holder describes who listens on the port ("nginx (pid 42)"), as far as we may see.
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

// listener is the socket's inode of whoever listens on the port, from one of the kernel's tables.
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
