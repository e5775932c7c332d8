// CPU time by program. On a machine with other load, CPU time per operation is more reliable than
// operations per second.

package probe

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

	"ringfence.dev/test/kit"
)

// Time maps each program to its CPU time. The Postgres backends of a service have the key "pg:" and
// the service's name. The other Postgres processes have the key "postgres". This process, which
// runs the clients, has the key "clients".
type Time map[string]time.Duration

// Meter measures the programs of one stack and of the stack's Postgres. Only one goroutine can use
// it.
type Meter struct {
	stack *kit.Stack
	db    *pgx.Conn
	// postmaster is the id of the parent process of the backends. It is empty if the server is on
	// another machine.
	postmaster string
	// backends contains the last reading of each Postgres backend of the services, also after the
	// backend has ended.
	backends map[string]backend
}

type backend struct {
	service string
	spent   time.Duration
}

// NewCPU returns a meter for the stack. db is the superuser's URL of the stack's Postgres.
func NewCPU(ctx context.Context, stack *kit.Stack, db string) (*Meter, error) {
	conn, err := pgx.Connect(ctx, db)
	if err != nil {
		return nil, err
	}
	m := &Meter{stack: stack, db: conn, backends: map[string]backend{}}
	var own int
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&own); err != nil {
		m.Close()
		return nil, err
	}
	m.postmaster = Parent(strconv.Itoa(own))
	return m, nil
}

func (m *Meter) Close() { _ = m.db.Close(context.Background()) }

// Used returns the CPU time of each program since its start. It is empty on systems without /proc.
func (m *Meter) Used(ctx context.Context) (Time, error) {
	used := Time{}
	if !HasProc() {
		return used, nil
	}
	var self syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &self) == nil {
		used["clients"] = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	}
	for name, pids := range m.stack.Processes() {
		for _, pid := range pids {
			used[name] += Spent(strconv.Itoa(pid))
		}
	}
	if err := m.look(ctx); err != nil {
		return nil, err
	}
	all := Spent(m.postmaster)
	for _, pid := range Children(m.postmaster) {
		all += Spent(pid)
	}
	for _, b := range m.backends {
		used["pg:"+b.service] += b.spent
		all -= b.spent
	}
	used["postgres"] = all
	return used, nil
}

const backendsOfServices = `
SELECT pid::text, replace(regexp_replace(usename, '_(app|owner)$', ''), '_', '-') FROM pg_stat_activity WHERE usename ~ '_(app|owner)$'`

func (m *Meter) look(ctx context.Context) error {
	rows, err := m.db.Query(ctx, backendsOfServices)
	if err != nil {
		return fmt.Errorf("list backends: %w", err)
	}
	var pid, service string
	_, err = pgx.ForEachRow(rows, []any{&pid, &service}, func() error {
		if Parent(pid) == m.postmaster {
			m.backends[pid] = backend{service, Spent(pid)}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list backends: %w", err)
	}
	return nil
}

// Less subtracts an earlier reading, so the result is the CPU time that was used since then.
func (t Time) Less(earlier Time) Time {
	used := Time{}
	for name, spent := range t {
		used[name] = spent - earlier[name]
	}
	return used
}

// Sum returns the CPU time of all programs.
func (t Time) Sum() (sum time.Duration) {
	for _, spent := range t {
		sum += spent
	}
	return sum
}

// Line formats the milliseconds per operation of each program, the largest first. turn is the name
// of one operation, for example "POST". The result is empty if nothing was measured.
func (t Time) Line(turn string, turns int) string {
	if len(t) == 0 || turns == 0 {
		return ""
	}
	var parts []string
	for _, name := range t.greatestFirst() {
		if each := MS(t[name]) / float64(turns); each >= 0.01 {
			parts = append(parts, fmt.Sprintf("%s %.2f", name, each))
		}
	}
	return fmt.Sprintf("CPU a %s %.2f ms: %s", turn, MS(t.Sum())/float64(turns), strings.Join(parts, ", "))
}

// Share formats the share of one core that each program used in the given time. The result is empty
// if nothing was measured.
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
