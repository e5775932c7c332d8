package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// cpuTime is what each program of the stack has used so far. On a machine that others use, too, CPU time a POST says more
// than POSTs a second.
type cpuTime map[string]time.Duration

// tick is the unit of /proc/<pid>/stat on Linux.
const tick = 10 * time.Millisecond

// cpu reads /proc; where there is none it is empty. Postgres is its backends together, the bench stands for its clients.
func (b *bench) cpu() cpuTime {
	used := cpuTime{}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return used
	}
	var self syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &self) == nil {
		used["clients"] = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	}
	for name, pids := range b.stack.Processes() {
		for _, pid := range pids {
			used[name] += spent(strconv.Itoa(pid))
		}
	}
	for _, pid := range childrenOf(b.postmaster) {
		used["postgres"] += spent(pid)
	}
	used["postgres"] += spent(b.postmaster)
	return used
}

// findPostmaster finds the process whose children the backends are; a server elsewhere has none here.
func (b *bench) findPostmaster(ctx context.Context) error {
	db, err := pgx.Connect(ctx, b.db)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	var backend int
	if err := db.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&backend); err != nil {
		return err
	}
	if fields := statOf(strconv.Itoa(backend)); len(fields) > 1 {
		b.postmaster = fields[1]
	}
	return nil
}

func childrenOf(parent string) (pids []string) {
	stats, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range stats {
		pid := filepath.Base(path)
		if fields := statOf(pid); len(fields) > 1 && fields[1] == parent {
			pids = append(pids, pid)
		}
	}
	return pids
}

// statOf are the fields of /proc/<pid>/stat from the state on: [1] is the parent.
func statOf(pid string) []string {
	stat, _ := os.ReadFile("/proc/" + pid + "/stat")
	_, rest, _ := bytes.Cut(stat, []byte(") ")) // the name before it may hold spaces
	return strings.Fields(string(rest))
}

// spent is a process's own time and that of its children that have ended.
func spent(pid string) time.Duration {
	fields := statOf(pid)
	ticks := 0
	for _, at := range []int{11, 12, 13, 14} { // utime, stime, cutime, cstime
		if at < len(fields) {
			n, _ := strconv.Atoi(fields[at])
			ticks += n
		}
	}
	return time.Duration(ticks) * tick
}

func (c cpuTime) less(before cpuTime) cpuTime {
	used := cpuTime{}
	for name, t := range c {
		used[name] = t - before[name]
	}
	return used
}

// line shows milliseconds a turn, the greatest first.
func (c cpuTime) line(turn string, turns int) string {
	if len(c) == 0 || turns == 0 {
		return ""
	}
	names := slices.SortedFunc(maps.Keys(c), func(a, b string) int { return cmp.Compare(c[b], c[a]) })
	var total time.Duration
	var parts []string
	for _, name := range names {
		total += c[name]
		if each := ms(c[name]) / float64(turns); each >= 0.01 {
			parts = append(parts, fmt.Sprintf("%s %.2f", name, each))
		}
	}
	return fmt.Sprintf("CPU a %s %.2f ms: %s", turn, ms(total)/float64(turns), strings.Join(parts, ", "))
}
