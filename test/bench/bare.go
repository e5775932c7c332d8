package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/test/bench/internal/probe"
	"ringfence.dev/test/kit"
)

const (
	// bareConns is the number of connections of the baseline loop. The dialer's connection pool has
	// the same size.
	bareConns = 16
	bareRows  = 100_000
)

const (
	claimed = iota
	fenced
	initiated
)

// dialCommits returns the durable commits of one dial. The first commit claims the call request.
// The second commit stores the fence. The third commit stores that the carrier has accepted the
// call.
func dialCommits() []probe.Commit {
	return []probe.Commit{
		{Awaited: true, Writes: []probe.Write{
			{Table: "dialer.dial_queue", Args: []probe.Value{probe.Request, probe.Lane},
				SQL: `UPDATE {} SET claimed_by = $2, look_at = now() + interval '15 seconds'
					WHERE call_request_id = $1 AND state = 'queued'`},
		}},
		{Awaited: true, Writes: []probe.Write{
			{Table: "dialer.dial_queue", Args: []probe.Value{probe.Request}, SQL: "UPDATE {} SET state = 'dialing', claimed_by = NULL WHERE call_request_id = $1 AND state = 'queued'"},
			{Table: "dialer.fences", Args: []probe.Value{probe.Call, probe.Request, probe.Lane},
				SQL: "INSERT INTO {} (call_id, call_request_id, attempt, trunk, instance_id) VALUES ($1, $2, 1, 'sim', $3)"},
			{Table: "dialer.calls", Args: []probe.Value{probe.Call, probe.Request, probe.Lane}, SQL: `
				INSERT INTO {} (call_id, call_request_id, workspace_id, direction, from_number, to_e164, agent_id, contact_id, variables, status, queued_at, max_call_seconds, deadline_at, owner, traceparent)
				SELECT $1, q.call_request_id, q.workspace_id, 'outbound', '+15005550006', q.to_e164, q.agent_id, q.contact_id, q.variables, 'fenced', q.queued_at, q.max_call_seconds,
					now() + interval '12 minutes', $3, q.traceparent FROM {dialer.dial_queue} q WHERE q.call_request_id = $2`},
			{Table: "dialer.outbox", Sample: true, Fresh: map[string]probe.Value{"id": probe.Sequence, "event_id": probe.Another}},
		}},
		{Writes: []probe.Write{
			{Table: "dialer.calls", Args: []probe.Value{probe.Call}, SQL: "UPDATE {} SET status = 'initiated', dialed_at = now(), version = 1, end_by = now() + interval '1 minute' WHERE call_id = $1"},
		}},
	}
}

// The rows of the queue are copies of the newest row that the product dialed. Each copy has its own
// phone number. The ids of the copy are derived from this number.
const fillDialQueue = `
INSERT INTO %s (call_request_id, workspace_id, state, to_e164, agent_id, contact_id, variables,
	schedule_if_outside_hours, max_call_seconds, queued_at, due_at, look_at, traceparent)
SELECT lpad(to_hex(n), 32, '0')::uuid, gen_random_uuid(), 'queued', '+1415' || lpad(n::text, 7, '0'), r.agent_id, r.contact_id, r.variables, r.schedule_if_outside_hours,
	r.max_call_seconds, r.queued_at, now(), now(), r.traceparent
FROM (SELECT agent_id, contact_id, variables, schedule_if_outside_hours, max_call_seconds, queued_at, traceparent FROM dialer.dial_queue
	WHERE to_e164 IS NOT NULL ORDER BY ctid DESC LIMIT 1) r, generate_series(1, $1::integer) n`

// bareDials is the baseline loop. It makes the commits of a dial and the request to a carrier, but
// without the product. Its simulated carrier is a separate process, which the dialer does not use.
type bareDials struct {
	copies probe.Copies
	loops  chan *probe.Loop
	sim    *exec.Cmd
	log    carrierLog
	client *http.Client
	n      atomic.Int64
}

func (h *CallStack) newBare(ctx context.Context) (b *bareDials, err error) {
	w, err := h.workspaces(ctx, "bare dials", 1)
	if err != nil {
		return nil, err
	}
	// creates the row that fillDialQueue copies
	if err := h.place(ctx, w[0], h.number(), time.Time{}); err != nil {
		return nil, err
	}
	if err := h.awaitEnded(ctx, w, callsStuck); err != nil {
		return nil, err
	}
	b = &bareDials{
		copies: probe.Copies{DB: h.db, Schema: "bench_dial"}, loops: make(chan *probe.Loop, bareConns),
		client: &http.Client{Transport: &http.Transport{MaxIdleConns: 256, MaxIdleConnsPerHost: 256}},
	}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if err := b.copies.Make(ctx, dialCommits()); err != nil {
		return b, err
	}
	if _, err := h.db.Exec(ctx, fmt.Sprintf(fillDialQueue, b.copies.Of("dialer.dial_queue")), bareRows); err != nil {
		return b, fmt.Errorf("fill the queue of the baseline loop: %w", err)
	}
	id, now := uuid.Must(uuid.NewV7()).String(), timestamppb.Now()
	err = b.copies.Sample(ctx, "dialer.outbox", kafka.DialEvents, &eventv1.DialEvent{
		CallRequestId: id, WorkspaceId: id, OccurredAt: now, Event: &eventv1.DialEvent_Dialing{Dialing: &eventv1.Dialing{}},
	})
	if err != nil {
		return b, err
	}
	for n := range bareConns {
		l, err := b.copies.NewLoop(ctx, h.DB, n, dialCommits())
		if err != nil {
			return b, err
		}
		b.loops <- l
	}
	return b, b.startSim(ctx, h)
}

func (b *bareDials) startSim(ctx context.Context, h *CallStack) error {
	port, err := testkit.Port()
	if err != nil {
		return err
	}
	b.log.url = fmt.Sprintf("http://127.0.0.1:%d", port)
	b.sim = exec.Command(filepath.Join(h.Bin, "simcarrier"))
	b.sim.Env = append(os.Environ(), fmt.Sprintf("SIMCARRIER_ADDR=127.0.0.1:%d", port), "SIMCARRIER_DIR="+filepath.Join(h.Home, "bare-carrier"),
		"SIMULATOR_TIME_SCALE=0", "LOG_LEVEL=warn", "PRIVATE_ADDR=127.0.0.1:0")
	if err := b.sim.Start(); err != nil {
		b.sim = nil
		return fmt.Errorf("start a simulated carrier: %w", err)
	}
	return kit.Until(ctx, 10*time.Second, "the simulated carrier of the baseline loop listens", func() (bool, error) {
		return get(ctx, b.log.url+"/healthz", func(*http.Response) error { return nil }) == nil, nil
	})
}

func (b *bareDials) close() {
	for len(b.loops) > 0 {
		(<-b.loops).Close()
	}
	_ = b.copies.Drop(context.Background())
	if b.sim != nil {
		_ = b.sim.Process.Signal(syscall.SIGTERM)
		_ = b.sim.Wait()
	}
}

func (b *bareDials) once(ctx context.Context, to string) error {
	l := <-b.loops
	defer func() { b.loops <- l }()
	n := b.n.Add(1)
	turn := probe.Turn{Request: binary.BigEndian.AppendUint64(make([]byte, 8, 16), uint64(n)), Call: probe.NewID(), N: n, Number: to}
	if n > bareRows {
		return errors.New("the queue of the baseline loop is empty: measure for a shorter time")
	}
	for _, i := range []int{claimed, fenced} {
		if err := l.Commit(ctx, i, turn); err != nil {
			return err
		}
	}
	if err := b.originate(ctx, turn); err != nil {
		return err
	}
	return l.Commit(ctx, initiated, turn)
}

func (b *bareDials) originate(ctx context.Context, t probe.Turn) error {
	body, err := json.Marshal(map[string]any{"call_id": uuid.UUID(t.Call), "from": "+15005550006", "to": t.Number, "dialed_at": time.Now()})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.log.url+"/originate", bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		return fmt.Errorf("originate of the baseline loop: %s", resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func (b *bareDials) flatOut(ctx context.Context, long time.Duration) (perSecond float64, err error) {
	var (
		wg     sync.WaitGroup
		made   atomic.Int64
		faults = make([]error, bareConns)
	)
	began := time.Now()
	for client := range bareConns {
		wg.Go(func() {
			for time.Since(began) < long && faults[client] == nil {
				faults[client] = b.once(ctx, dialedNumber(made.Add(1)))
			}
		})
	}
	wg.Wait()
	return float64(made.Load()) / time.Since(began).Seconds(), errors.Join(faults...)
}

// runEvenly makes dials at a constant rate. For each dial it returns the time from the due time to
// the dial's line in the carrier's log. A dial waits for a free connection.
func (b *bareDials) runEvenly(ctx context.Context, rate int, long time.Duration) (took []time.Duration, err error) {
	if _, err := b.log.since(ctx); err != nil {
		return nil, err
	}
	var (
		wg      sync.WaitGroup
		numbers = make([]string, int(long.Seconds()*float64(rate)))
		faults  = make([]error, len(numbers))
		due     = make(map[string]time.Time, len(numbers))
		start   = time.Now()
	)
	for n := range numbers {
		numbers[n] = dialedNumber(int64(rate)*100_000 + int64(n))
		due[numbers[n]] = start.Add(time.Duration(n) * time.Second / time.Duration(rate))
	}
	for n, to := range numbers {
		if err := callPause(ctx, time.Until(due[to])); err != nil {
			return nil, err
		}
		wg.Go(func() { faults[n] = b.once(ctx, to) })
	}
	wg.Wait()
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("baseline dials: %s", strings.SplitN(err.Error(), "\n", 2)[0])
	}
	entries, err := b.log.since(ctx)
	for to, at := range countDials(entries, numbers).dialedAt {
		took = append(took, at.Sub(due[to]))
	}
	return took, err
}
