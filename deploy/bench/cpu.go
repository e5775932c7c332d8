package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/deploy/bench/internal/figure"
	"ringfence.dev/deploy/bench/internal/proc"
)

// cpuTime is what each program of the stack has used so far. On a machine that others use, too, CPU time a POST says more
// than POSTs a second.
type cpuTime map[string]time.Duration

// cpu reads /proc; where there is none it is empty. Postgres is its backends together, the bench stands for its clients.
func (b *bench) cpu() cpuTime {
	used := cpuTime{}
	if !proc.There() {
		return used
	}
	var self syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &self) == nil {
		used["clients"] = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	}
	for name, pids := range b.stack.Processes() {
		for _, pid := range pids {
			used[name] += proc.Spent(strconv.Itoa(pid))
		}
	}
	for _, pid := range proc.Children(b.postmaster) {
		used["postgres"] += proc.Spent(pid)
	}
	used["postgres"] += proc.Spent(b.postmaster)
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
	b.postmaster = proc.Parent(strconv.Itoa(backend))
	return nil
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
		if each := figure.MS(c[name]) / float64(turns); each >= 0.01 {
			parts = append(parts, fmt.Sprintf("%s %.2f", name, each))
		}
	}
	return fmt.Sprintf("CPU a %s %.2f ms: %s", turn, figure.MS(total)/float64(turns), strings.Join(parts, ", "))
}
