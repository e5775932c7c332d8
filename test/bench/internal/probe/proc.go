// Package proc reads what processes of this machine have used, from Linux' /proc; elsewhere everything is zero.

package probe

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of /proc/<pid>/stat on Linux.
const tick = 10 * time.Millisecond

// There says whether this system has a /proc.
func There() bool {
	_, err := os.Stat("/proc/self/stat")
	return err == nil
}

// Parent is the id of a process's parent; empty when there is no such process.
func Parent(pid string) string {
	if fields := stat(pid); len(fields) > 1 {
		return fields[1]
	}
	return ""
}

// Children are the ids of a process's children.
func Children(parent string) (pids []string) {
	stats, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range stats {
		if pid := filepath.Base(path); Parent(pid) == parent {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Spent is a process's own time and that of its children that have ended, in steps of 10 ms.
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

// SpentAlone is the time of a process with one thread, exact to the nanosecond where the kernel tells it, else in steps of 10 ms.
func SpentAlone(pid string) time.Duration {
	text, err := os.ReadFile("/proc/" + pid + "/schedstat")
	first, _, _ := strings.Cut(string(text), " ")
	if ns, bad := strconv.ParseInt(first, 10, 64); err == nil && bad == nil && ns > 0 {
		return time.Duration(ns)
	}
	return Spent(pid)
}

// stat are the fields of /proc/<pid>/stat from the state on: [1] is the parent.
func stat(pid string) []string {
	text, _ := os.ReadFile("/proc/" + pid + "/stat")
	_, rest, _ := bytes.Cut(text, []byte(") ")) // the name before it may hold spaces
	return strings.Fields(string(rest))
}

// Resident is how many bytes of a process are in memory, those that it shares with others included.
func Resident(pid string) int64 {
	text, _ := os.ReadFile("/proc/" + pid + "/statm")
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}
