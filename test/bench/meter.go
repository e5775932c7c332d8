package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/test/bench/internal/probe"
)

// backendsGroup is the name of the group of Postgres processes that serve the two database roles of
// the dispatcher.
const backendsGroup = "backends"

// meter sums the CPU time of the dispatcher and of the dispatcher's Postgres backends. It reads the
// backends four times a second. The CPU time of a backend after the last read is missing.
type meter struct {
	house  *WebhookStack
	db     *pgx.Conn
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	begun map[process]time.Duration
	last  map[process]time.Duration
	kinds map[process]string
	fault error
	anew  bool
	pid   int
	own   time.Duration
	catch time.Duration
}

// process identifies one process of Postgres. The start time is part of the key because process ids
// are reused.
type process struct {
	pid     int32
	started time.Time
}

type used struct {
	dispatcher, backends, receiver time.Duration
	// otherPostgres contains the CPU time of the other Postgres processes, by kind, such as walwriter.
	otherPostgres map[string]time.Duration
	ended         int
}

const processes = `
SELECT pid, backend_start, CASE WHEN usename LIKE 'webhook\_dispatcher\_%' THEN 'backends' ELSE backend_type END
FROM pg_stat_activity
WHERE usename LIKE 'webhook\_dispatcher\_%' OR backend_type IN ('walwriter', 'checkpointer', 'background writer', 'autovacuum launcher', 'autovacuum worker')`

// watch starts a meter. If willRestart is true, the caller is about to restart the dispatcher. The
// CPU time of the new process then counts from its start.
func (h *WebhookStack) watch(ctx context.Context, willRestart bool) (*meter, error) {
	m := &meter{house: h, anew: willRestart, begun: map[process]time.Duration{}, last: map[process]time.Duration{},
		kinds: map[process]string{}, done: make(chan struct{})}
	var err error
	if m.db, err = pgx.Connect(ctx, h.DB); err != nil {
		return nil, err
	}
	if !willRestart {
		if m.pid, err = h.pid(); err != nil {
			return nil, err
		}
		m.own = probe.Spent(strconv.Itoa(m.pid))
	}
	m.catch = probe.Spent(h.receiver.PID)
	ctx, m.cancel = context.WithCancel(ctx)
	if err := m.look(ctx); err != nil {
		m.cancel()
		return nil, err
	}
	m.mu.Lock()
	maps.Copy(m.begun, m.last)
	m.mu.Unlock()
	go func() {
		defer close(m.done)
		for webhookPause(ctx, 250*time.Millisecond) == nil {
			if err := m.look(ctx); err != nil && ctx.Err() == nil {
				m.fault = err
				return
			}
		}
	}()
	return m, nil
}

func (m *meter) look(ctx context.Context) error {
	rows, err := m.db.Query(ctx, processes)
	if err != nil {
		return err
	}
	var one process
	var kind string
	_, err = pgx.ForEachRow(rows, []any{&one.pid, &one.started, &kind}, func() error {
		pid := strconv.Itoa(int(one.pid))
		if probe.Parent(pid) != m.house.postmaster {
			return nil // the process has ended, or is on another machine
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.kinds[one], m.last[one] = kind, probe.SpentAlone(pid)
		return nil
	})
	return err
}

func (m *meter) stop(ctx context.Context) (used, error) {
	m.cancel()
	<-m.done
	defer func() { _ = m.db.Close(context.WithoutCancel(ctx)) }()
	if m.fault != nil {
		return used{}, fmt.Errorf("watch the database's processes: %w", m.fault)
	}
	// Connect again: if the context was canceled during a query, the old connection is unusable.
	db, err := pgx.Connect(ctx, m.house.DB)
	if err != nil {
		return used{}, err
	}
	_ = m.db.Close(ctx)
	m.db = db
	if err := m.look(ctx); err != nil {
		return used{}, err
	}
	pid, err := m.house.pid()
	if err != nil {
		return used{}, err
	}
	u := used{
		dispatcher: probe.Spent(strconv.Itoa(pid)), receiver: probe.Spent(m.house.receiver.PID) - m.catch,
		otherPostgres: map[string]time.Duration{},
	}
	if pid == m.pid {
		u.dispatcher -= m.own
	}
	for one, spent := range m.last {
		spent -= m.begun[one]
		if m.kinds[one] != backendsGroup {
			u.otherPostgres[m.kinds[one]] += spent
			continue
		}
		u.backends += spent
		_, before := m.begun[one]
		replaced := before && m.anew
		if !replaced && probe.Parent(strconv.Itoa(int(one.pid))) == "" {
			u.ended++
		}
	}
	return u, nil
}

// verdictOrReason returns the verdict. If the CPU time could not be measured (without /proc, or on
// another machine), it returns the reason.
func (u used) verdictOrReason(verdict string) string {
	if u.dispatcher <= 0 || u.backends <= 0 {
		return "not measured: it takes Linux and a Postgres of this machine"
	}
	return verdict
}

// perDelivery returns the CPU time of the dispatcher and of its backends for each delivery, in
// milliseconds.
func (u used) perDelivery(deliveries int) float64 {
	return probe.MS(u.dispatcher+u.backends) / float64(max(deliveries, 1))
}

func (u used) lines(deliveries int) string {
	of := func(d time.Duration) float64 { return probe.MS(d) / float64(max(deliveries, 1)) }
	var beside []string
	for _, kind := range slices.Sorted(maps.Keys(u.otherPostgres)) {
		if u.otherPostgres[kind] > 0 {
			beside = append(beside, fmt.Sprintf("%s %.3f", kind, of(u.otherPostgres[kind])))
		}
	}
	text := fmt.Sprintf("process %.3f ms + its backends %.3f ms; beside it %s, the receiver %.3f", of(u.dispatcher), of(u.backends), strings.Join(beside, ", "), of(u.receiver))
	if u.ended > 0 {
		text += fmt.Sprintf("; %d backends ended meanwhile, up to 0.25 s of each unseen", u.ended)
	}
	return text
}
