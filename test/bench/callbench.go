// Measurements of calls through the whole stack. README.md describes each figure. The time of a
// call is from its due time to the dial in the carrier's log, or to the terminal webhook.

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/test/bench/internal/probe"
	"ringfence.dev/test/kit"
)

const dialer = "dialer"

// CallSetup are the parameters of the measurements.
type CallSetup struct {
	Stack *kit.Stack
	// Bin is the folder of the programs, Home the folder of the stack, and DB the superuser's URL
	// of the stack's database.
	Bin, Home, DB string
	// Hooks receives webhooks and passes them to Landing.
	Hooks   *kit.Receiver
	Landing *Landing
	Meter   *probe.Meter
	// TurnCPU measures the CPU time of the commits in sixCommits. It returns 0 if the CPU time cannot
	// be measured.
	TurnCPU func(context.Context) (time.Duration, error)
	// Each is the duration of one measurement.
	Each time.Duration
	// Held is the number of concurrent calls in the measurement with the same name.
	Held int
}

// CallStack is the state that the measurements share.
type CallStack struct {
	CallSetup
	db    *pgx.Conn
	ports map[string]int
	log   carrierLog
	next  atomic.Int64
	// repeatTimeout limits the time for which a POST is repeated.
	repeatTimeout time.Duration
	refused       atomic.Int64
}

// OpenCalls connects to the stack.
func OpenCalls(ctx context.Context, setup CallSetup) (*CallStack, error) {
	h := &CallStack{CallSetup: setup, log: carrierLog{url: setup.Stack.Demo.SimURL}, repeatTimeout: webhookTimeout}
	data, err := os.ReadFile(filepath.Join(setup.Home, "state.json"))
	if err != nil {
		return nil, err
	}
	var known struct{ Ports map[string]int }
	if err := json.Unmarshal(data, &known); err != nil {
		return nil, fmt.Errorf("read the stack's state: %w", err)
	}
	h.ports = known.Ports
	h.db, err = pgx.Connect(ctx, setup.DB)
	return h, err
}

func (h *CallStack) Close() { _ = h.db.Close(context.Background()) }

// These measurements call the numbers dialedNumber(firstNumber) and higher. No other measurement
// calls these numbers.
const firstNumber = 5_000_000

func (h *CallStack) number() string { return dialedNumber(firstNumber + h.next.Add(1)) }

// dialedNumber returns the n-th of nine million numbers. None of them is busy, silent or invalid.
func dialedNumber(n int64) string { return fmt.Sprintf("+1415%05d%02d", n/90%100_000, n%90) }

// errBusy means that POST /v1/calls had no response, or only 503 for a minute. It is then unknown
// whether the call request exists.
var errBusy = errors.New("POST /v1/calls was not answered, or 503 for a minute")

// place posts one call. The call is scheduled for the time at, unless at is zero. The POST is
// repeated while a service is too busy.
func (h *CallStack) place(ctx context.Context, w *kit.Workspace, to string, at time.Time) error {
	body := map[string]any{"agent_id": w.AgentID, "to": to}
	if !at.IsZero() {
		body["scheduled_for"] = at.UTC().Format(time.RFC3339Nano)
	}
	for began := time.Now(); ; {
		status, answer, err := w.API.Do(ctx, http.MethodPost, "/v1/calls", body)
		var slow net.Error
		switch {
		case errors.As(err, &slow) && slow.Timeout() && ctx.Err() == nil:
			return fmt.Errorf("%w: %w", errBusy, err)
		case err != nil:
			return err
		case status == http.StatusAccepted:
			return nil
		case status != http.StatusServiceUnavailable:
			return fmt.Errorf("POST /v1/calls: %d %s", status, answer)
		case time.Since(began) > h.repeatTimeout:
			return fmt.Errorf("%w: %s", errBusy, answer)
		}
		h.refused.Add(1)
		if err := callPause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

func (h *CallStack) workspaces(ctx context.Context, name string, n int) (made []*kit.Workspace, err error) {
	for range n {
		w, err := h.Stack.NewWorkspace(ctx, "bench "+name, "10000000")
		if err != nil {
			return nil, err
		}
		made = append(made, w)
	}
	return made, nil
}

func ids(workspaces []*kit.Workspace) (ids []string) {
	for _, w := range workspaces {
		ids = append(ids, w.ID)
	}
	return ids
}

// forEach calls the function do for each item, in the given number of goroutines. It stops after
// the first error.
func forEach[T any](ctx context.Context, clients int, items []T, do func(context.Context, int, T) error) error {
	var (
		wg     sync.WaitGroup
		at     atomic.Int64
		faults = make([]error, clients)
	)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for client := range clients {
		wg.Go(func() {
			for n := int(at.Add(1)) - 1; n < len(items) && ctx.Err() == nil; n = int(at.Add(1)) - 1 {
				if faults[client] = do(ctx, n, items[n]); faults[client] != nil {
					stop()
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range faults {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return errors.Join(faults...)
}

const openRequests = `SELECT count(*) FROM calls.call_requests WHERE workspace_id = ANY ($1::uuid[]) AND status IN ('queued', 'dialing')`

// awaitEnded waits until the workspaces have no open call request. If no call request ends during
// the timeout, it returns nil. The caller then reports the missing calls.
func (h *CallStack) awaitEnded(ctx context.Context, workspaces []*kit.Workspace, timeout time.Duration) error {
	left, moved := -1, time.Now()
	for {
		var open int
		if err := h.db.QueryRow(ctx, openRequests, ids(workspaces)).Scan(&open); err != nil {
			return err
		}
		if open != left {
			left, moved = open, time.Now()
		}
		if open == 0 || time.Since(moved) > timeout {
			return nil
		}
		if err := callPause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

func (h *CallStack) scrape(ctx context.Context, service string) (map[string]float64, error) {
	values := map[string]float64{}
	err := h.private(ctx, service, "/metrics", func(resp *http.Response) error {
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			name, text, found := strings.Cut(lines.Text(), " ")
			if value, err := strconv.ParseFloat(text, 64); found && err == nil {
				values[name] = value
			}
		}
		return lines.Err()
	})
	return values, err
}

func (h *CallStack) private(ctx context.Context, service, path string, read func(*http.Response) error) error {
	return get(ctx, fmt.Sprintf("http://127.0.0.1:%d%s", h.ports[service+" private 1"], path), read)
}

func get(ctx context.Context, url string, read func(*http.Response) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return read(resp)
}

func callPause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
