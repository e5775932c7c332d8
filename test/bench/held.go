package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringfence.dev/test/bench/internal/probe"
	"ringfence.dev/test/kit"
)

const (
	heldFor = time.Minute
	// postClients is the number of clients that post calls. hangUpClients is the number of clients
	// that make the called persons hang up.
	postClients, hangUpClients = 16, 16
	// rampPatience limits the time between two answered calls. After this time, the missing calls
	// count as lost.
	rampPatience = time.Minute
)

var services = []string{"gateway", "calls", "contacts-compliance", dialer, "billing-wallet", "webhook-dispatcher"}

// memory is the resident memory of a program. For a service it also contains the heap after a
// garbage collection and the number of goroutines.
type memory struct {
	resident, heap, goroutines float64
}

// Held keeps many calls answered for a minute, measures their memory, and ends the calls.
func Held(ctx context.Context, h *CallStack) error {
	if err := h.setFault(ctx, http.MethodPost, map[string]any{"fault": "hold"}); err != nil {
		return err
	}
	defer func() { _ = h.setFault(context.WithoutCancel(ctx), http.MethodDelete, nil) }()
	workspaces, err := h.workspaces(ctx, "held", 4)
	if err != nil {
		return err
	}
	for _, w := range workspaces {
		if _, err := w.Subscribe(ctx, h.Hooks); err != nil {
			return err
		}
	}
	if _, err := h.log.since(ctx); err != nil {
		return err
	}
	before, err := h.measureMemory(ctx)
	if err != nil {
		return err
	}
	numbers, err := h.ramp(ctx, workspaces)
	if err != nil {
		return err
	}
	during, err := h.holdThem(ctx, workspaces)
	if err != nil {
		return err
	}
	if err := h.endCalls(ctx, numbers, workspaces); err != nil {
		return err
	}
	after, err := h.measureMemory(ctx)
	if err != nil {
		return err
	}
	printWeights(before, during, after, float64(len(numbers)))
	return nil
}

func (h *CallStack) setFault(ctx context.Context, method string, body any) error {
	status, answer, err := kit.NewClient(h.Stack.Demo.SimURL, "").Do(ctx, method, "/faults", body)
	if err == nil && status >= http.StatusBadRequest {
		err = fmt.Errorf("%s /faults: %d %s", method, status, answer)
	}
	return err
}

const inProgress = `SELECT count(*) FROM calls.calls WHERE workspace_id = ANY ($1::uuid[]) AND status = 'in_progress'`

func (h *CallStack) ramp(ctx context.Context, workspaces []*kit.Workspace) ([]string, error) {
	numbers, began := make([]string, h.Held), time.Now()
	for n := range numbers {
		numbers[n] = h.number()
		h.Landing.expect(numbers[n])
	}
	err := forEach(ctx, postClients, numbers, func(ctx context.Context, n int, to string) error {
		return h.place(ctx, workspaces[n%len(workspaces)], to, time.Time{})
	})
	if err != nil {
		return nil, err
	}
	posted, answered, moved := time.Since(began), -1, time.Now()
	for answered < h.Held && time.Since(moved) < rampPatience {
		var now int
		if err := h.db.QueryRow(ctx, inProgress, ids(workspaces)).Scan(&now); err != nil {
			return nil, err
		}
		if now != answered {
			answered, moved = now, time.Now()
		}
		if err := callPause(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	fmt.Printf("  %d calls posted in %.0f s, %d of them answered and in progress after %.0f s\n", h.Held, posted.Seconds(), answered, time.Since(began).Seconds())
	return numbers, nil
}

// inUseQuery counts the rows of dial_queue that count toward the dialer's limits of concurrent
// calls.
const inUseQuery = `
SELECT count(*) FROM dialer.dial_queue
WHERE state = 'dialing' OR state = 'queued' AND claimed_by IS NOT NULL AND look_at > now()`

func (h *CallStack) holdThem(ctx context.Context, workspaces []*kit.Workspace) (weights map[string]memory, err error) {
	// The new calls cause further work in the services, which takes less than 5 s.
	if err := callPause(ctx, 5*time.Second); err != nil {
		return nil, err
	}
	used, err := h.Meter.Used(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := callPause(ctx, heldFor); err != nil {
		return nil, err
	}
	now, err := h.Meter.Used(ctx)
	if err != nil {
		return nil, err
	}
	meanwhile, took := now.Less(used), time.Since(began)
	if weights, err = h.measureMemory(ctx); err != nil {
		return nil, err
	}
	var taken, answered int
	if err := h.db.QueryRow(ctx, inUseQuery).Scan(&taken); err != nil {
		return nil, err
	}
	if err := h.db.QueryRow(ctx, inProgress, ids(workspaces)).Scan(&answered); err != nil {
		return nil, err
	}
	fmt.Printf("  held for %.0f s: %d in progress, %d requests in use\n", took.Seconds(), answered, taken)
	if line := meanwhile.Share(took); line != "" {
		fmt.Printf("    CPU %s\n", line)
	}
	return weights, nil
}

// printWeights prints the memory of the programs before, during and after the calls.
func printWeights(before, during, after map[string]memory, calls float64) {
	kB := func(less, more float64) float64 { return (more - less) / 1024 / calls }
	for _, name := range slices.Sorted(maps.Keys(during)) {
		was, is, ended := before[name], during[name], after[name]
		fmt.Printf("    %-19s RSS %3.0f → %3.0f → %3.0f MB, at most %.1f kB a call", name, was.resident/1e6, is.resident/1e6, ended.resident/1e6, kB(was.resident, is.resident))
		if is.goroutines > 0 {
			fmt.Printf("; heap %4.1f → %4.1f → %4.1f MB, at most %.2f kB a call; goroutines %.0f → %.0f → %.0f", was.heap/1e6, is.heap/1e6, ended.heap/1e6,
				kB(min(was.heap, ended.heap), is.heap), was.goroutines, is.goroutines, ended.goroutines)
		}
		fmt.Println()
	}
}

// measureMemory measures every program. Each service runs a garbage collection first.
func (h *CallStack) measureMemory(ctx context.Context) (map[string]memory, error) {
	weights := map[string]memory{}
	for name, pids := range h.Stack.Processes() {
		w := memory{}
		for _, pid := range pids {
			w.resident += float64(probe.Resident(strconv.Itoa(pid)))
		}
		// the memory of Postgres cannot be added up, because its backends share pages
		if name != "postgres" {
			weights[name] = w
		}
	}
	for _, service := range services {
		for range 2 { // the second collection frees the contents of sync.Pool
			if err := h.private(ctx, service, "/debug/pprof/heap?gc=1", func(*http.Response) error { return nil }); err != nil {
				return nil, err
			}
		}
		values, err := h.scrape(ctx, service)
		if err != nil {
			return nil, err
		}
		w := weights[service]
		w.heap, w.goroutines = values["go_memstats_heap_alloc_bytes"], values["go_goroutines"]
		weights[service] = w
	}
	return weights, nil
}

func (h *CallStack) endCalls(ctx context.Context, numbers []string, workspaces []*kit.Workspace) error {
	entries, err := h.log.since(ctx)
	if err != nil {
		return err
	}
	began, early := time.Now(), countDials(entries, numbers)
	err = forEach(ctx, hangUpClients, slices.Collect(maps.Values(early.calls)),
		func(ctx context.Context, _ int, id string) error { return h.hangUp(ctx, id) })
	if err != nil {
		return err
	}
	let := time.Since(began)
	if err := h.awaitEnded(ctx, workspaces, rampPatience); err != nil {
		return err
	}
	over := time.Since(began)
	hooks := h.awaitWebhooks(ctx, numbers)
	landed := time.Since(began)
	var completed, left int
	if err := h.db.QueryRow(ctx, `SELECT count(*) FROM calls.calls WHERE workspace_id = ANY ($1::uuid[]) AND status = 'completed'`, ids(workspaces)).Scan(&completed); err != nil {
		return err
	}
	if err := h.db.QueryRow(ctx, inUseQuery).Scan(&left); err != nil {
		return err
	}
	more, err := h.log.since(ctx)
	if err != nil {
		return err
	}
	all, wrong := countDials(append(entries, more...), numbers), []string{}
	for _, w := range workspaces {
		found, err := w.Differences(ctx)
		if err != nil {
			return err
		}
		wrong = append(wrong, found...)
	}
	fmt.Printf("  all persons hung up within %.1f s; every call had ended after %.1f s (%.0f /s), the last terminal webhook was there after %.1f s\n",
		let.Seconds(), over.Seconds(), float64(completed)/over.Seconds(), landed.Seconds())
	fmt.Printf("    of %d: %d completed, %d ended before they were let go, %d not dialed, %d dialed twice, "+
		"%d without a terminal event, %d with two\n",
		len(numbers), completed, early.ended, all.missing, all.twice, hooks.missing, hooks.duplicates)
	fmt.Printf("    requests in use %d; differences in the books %d %s\n", left, len(wrong),
		strings.Join(wrong[:min(3, len(wrong))], "; "))
	return nil
}

func (h *CallStack) hangUp(ctx context.Context, callID string) error {
	body, err := json.Marshal(map[string]any{"call_id": callID, "by": "callee"})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.Stack.Demo.SimURL+"/hangup", bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("hang up %s: %s", callID, resp.Status)
	}
	return nil
}

func (h *CallStack) awaitWebhooks(ctx context.Context, numbers []string) landingResult {
	left, moved := -1, time.Now()
	for time.Since(moved) < callsStuck {
		now := h.Landing.left(numbers)
		if now == 0 {
			break
		}
		if now != left {
			left, moved = now, time.Now()
		}
		if callPause(ctx, 100*time.Millisecond) != nil {
			break
		}
	}
	return h.Landing.takeResult(numbers)
}
