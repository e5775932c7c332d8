// Resource usage of processes, from /proc of Linux. On other systems all values are zero.

package probe

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the CPU times in /proc/<pid>/stat on Linux.
const tick = 10 * time.Millisecond

// HasProc reports whether this system has /proc.
func HasProc() bool {
	_, err := os.Stat("/proc/self/stat")
	return err == nil
}

// Parent returns the id of a process's parent, or "" if the process does not exist.
func Parent(pid string) string {
	if fields := stat(pid); len(fields) > 1 {
		return fields[1]
	}
	return ""
}

// Children returns the ids of a process's children.
func Children(parent string) (pids []string) {
	stats, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range stats {
		if pid := filepath.Base(path); Parent(pid) == parent {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Spent returns the CPU time of a process and of its ended children. The resolution is 10 ms.
func Spent(pid string) time.Duration {
	fields := stat(pid)
	ticks := 0
	for _, at := range []int{11, 12, 13, 14} { // utime, stime, cutime, cstime
		if at < len(fields) {
			n, _ := strconv.Atoi(fields[at])
			ticks += n
		}
	}
	return time.Duration(ticks) * tick
}

// SpentAlone returns the CPU time of a process with one thread. The resolution is a nanosecond if
// the kernel has the value, otherwise 10 ms.
func SpentAlone(pid string) time.Duration {
	text, err := os.ReadFile("/proc/" + pid + "/schedstat")
	first, _, _ := strings.Cut(string(text), " ")
	if ns, bad := strconv.ParseInt(first, 10, 64); err == nil && bad == nil && ns > 0 {
		return time.Duration(ns)
	}
	return Spent(pid)
}

// stat returns the fields of /proc/<pid>/stat, beginning with the process state. Index 1 is the id
// of the parent.
func stat(pid string) []string {
	text, _ := os.ReadFile("/proc/" + pid + "/stat")
	_, rest, _ := bytes.Cut(text, []byte(") ")) // the process name is in parentheses and can contain spaces
	return strings.Fields(string(rest))
}

// Resident returns the resident memory of a process in bytes, including shared pages.
func Resident(pid string) int64 {
	text, _ := os.ReadFile("/proc/" + pid + "/statm")
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}
