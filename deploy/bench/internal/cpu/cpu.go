// Package cpu says what each program of a stack has used. On a machine that others use, too, CPU time a turn says more than turns a second.
package cpu

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
	"ringfence.dev/deploy/e2e/rig"
)

// Time is CPU time by program. Postgres is its backends and its own processes together; the bench stands for its clients, and for the receiver of
// webhooks where that is in its process.
type Time map[string]time.Duration

// Meter looks at the programs of one stack and at its Postgres.
type Meter struct {
	stack *rig.Stack
	// postmaster is the process whose children the backends are; of a server elsewhere it has none here.
	postmaster string
}

// New finds the Postgres behind a URL.
func New(ctx context.Context, stack *rig.Stack, db string) (*Meter, error) {
	conn, err := pgx.Connect(ctx, db)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var backend int
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&backend); err != nil {
		return nil, err
	}
	return &Meter{stack: stack, postmaster: proc.Parent(strconv.Itoa(backend))}, nil
}

// Used is what each program has used since it began; empty on systems without /proc.
func (m *Meter) Used() Time {
	used := Time{}
	if !proc.There() {
		return used
	}
	var self syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &self) == nil {
		used["clients"] = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	}
	for name, pids := range m.stack.Processes() {
		for _, pid := range pids {
			used[name] += proc.Spent(strconv.Itoa(pid))
		}
	}
	for _, pid := range proc.Children(m.postmaster) {
		used["postgres"] += proc.Spent(pid)
	}
	used["postgres"] += proc.Spent(m.postmaster)
	return used
}

// Less is what was used since before.
func (t Time) Less(before Time) Time {
	used := Time{}
	for name, spent := range t {
		used[name] = spent - before[name]
	}
	return used
}

// Sum is of all programs.
func (t Time) Sum() (sum time.Duration) {
	for _, spent := range t {
		sum += spent
	}
	return sum
}

// Line shows milliseconds a turn, the greatest first; empty when nothing was seen.
func (t Time) Line(turn string, turns int) string {
	if len(t) == 0 || turns == 0 {
		return ""
	}
	var parts []string
	for _, name := range t.greatestFirst() {
		if each := figure.MS(t[name]) / float64(turns); each >= 0.01 {
			parts = append(parts, fmt.Sprintf("%s %.2f", name, each))
		}
	}
	return fmt.Sprintf("CPU a %s %.2f ms: %s", turn, figure.MS(t.Sum())/float64(turns), strings.Join(parts, ", "))
}

// Share shows what part of one core each program used meanwhile; empty when nothing was seen.
func (t Time) Share(meanwhile time.Duration) string {
	var parts []string
	of := func(spent time.Duration) float64 { return 100 * spent.Seconds() / meanwhile.Seconds() }
	for _, name := range t.greatestFirst() {
		if share := of(t[name]); share >= 0.1 {
			parts = append(parts, fmt.Sprintf("%s %.1f", name, share))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f %% of a core: %s", of(t.Sum()), strings.Join(parts, ", "))
}

func (t Time) greatestFirst() []string {
	return slices.SortedFunc(maps.Keys(t), func(a, b string) int { return cmp.Compare(t[b], t[a]) })
}
