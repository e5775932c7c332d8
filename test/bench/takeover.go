package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"ringfence.dev/test/bench/internal/probe"
	"ringfence.dev/test/kit"
)

const (
	// takeoverLease is the duration of every lease in this stack.
	takeoverLease = 5 * time.Second
	// goalTakeover limits the time of the slowest call during the loss of a replica. It is a multiple
	// of takeoverLease.
	goalTakeover = 4.0
	// disturbedTime is the time for which calls are placed after a replica was lost.
	disturbedTime = 5 * time.Second
)

// measureTakeover measures the time from POST to the last webhook while one of two replicas is
// killed or stopped. The other replica takes over when the leases end.
func measureTakeover(ctx context.Context, b *bench) error {
	server, err := kit.StartPostgres(b.bin, "--durable")
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop() }()
	lease := takeoverLease.String()
	stack, err := b.start(ctx, filepath.Join(b.home, "takeover"), server.URL, "RINGFENCE_REPLICAS=2",
		"CLAIM_LEASE="+lease, "INSTANCE_LEASE="+lease, "WEBHOOK_LEASE="+lease, "WEBHOOK_TIMEOUT=4s",
		"IDEMPOTENCY_LEASE=3s", "UNCONFIRMED_AFTER="+lease)
	if err != nil {
		return err
	}
	defer func() { _ = stack.Stop() }()
	w, err := stack.NewWorkspace(ctx, "bench takeover", "100000")
	if err != nil {
		return err
	}
	if _, err := w.Subscribe(ctx, b.hooks); err != nil {
		return err
	}
	t := &takeovers{stack: stack, workspace: w, hooks: b.hooks}
	if err := t.runRound(ctx, "undisturbed", func() error { return nil }); err != nil {
		return err
	}
	for _, name := range []string{"dialer", "calls", "billing-wallet", "webhook-dispatcher"} {
		for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
			if err := t.loseReplica(ctx, name, signal); err != nil {
				return err
			}
		}
	}
	times := float64(t.worst) / float64(takeoverLease)
	fmt.Printf("  slowest call beside a lost replica, of a lease of %s   %.1f x   %s\n",
		takeoverLease, times, probe.AtMost(times, goalTakeover, "x"))
	return nil
}

type takeovers struct {
	stack     *kit.Stack
	workspace *kit.Workspace
	hooks     *kit.Receiver
	next      int64
	worst     time.Duration
}

// loseReplica sends a signal to one replica of a service and measures the calls that are placed
// before and after. At the end it continues a process that was stopped.
func (t *takeovers) loseReplica(ctx context.Context, name string, signal syscall.Signal) error {
	pids := t.stack.Processes()[name]
	if len(pids) != 2 {
		return fmt.Errorf("%d processes of %s run, want 2", len(pids), name)
	}
	what := fmt.Sprintf("%s, %s", name, signal)
	err := t.runRound(ctx, what, func() error { return syscall.Kill(pids[0], signal) })
	if signal == syscall.SIGSTOP {
		_ = syscall.Kill(pids[0], syscall.SIGCONT)
	}
	if err != nil {
		return err
	}
	return kit.Until(ctx, time.Minute, "both replicas of "+name+" run", func() (bool, error) {
		return len(t.stack.Processes()[name]) == 2, nil
	})
}

// runRound places calls for two seconds, calls the function disturb, and places further calls. Then
// it waits until the last webhook of every call has arrived.
func (t *takeovers) runRound(ctx context.Context, what string, disturb func() error) error {
	sent := map[string]time.Time{}
	var mu sync.Mutex
	var posts sync.WaitGroup
	var fault error
	tick := time.NewTicker(time.Second / callsPerSecond)
	defer tick.Stop()
	const before = 2 * callsPerSecond
	for n := range before + int(disturbedTime.Seconds()*callsPerSecond) {
		<-tick.C
		if n == before {
			if err := disturb(); err != nil {
				return err
			}
		}
		t.next++
		to := phoneNumber(t.next)
		posts.Go(func() {
			at := time.Now()
			err := t.post(ctx, to)
			mu.Lock()
			defer mu.Unlock()
			sent[to] = at
			if err != nil {
				fault = err
			}
		})
	}
	posts.Wait()
	if fault != nil {
		return fault
	}
	var took []time.Duration
	err := kit.Until(ctx, 2*time.Minute, what+": every call has its last webhook", func() (bool, error) {
		took = took[:0]
		for to, at := range lastWebhooks(t.hooks, t.workspace) {
			if since, ours := sent[to]; ours {
				took = append(took, at.Sub(since))
			}
		}
		return len(took) == len(sent), nil
	})
	if err != nil {
		return err
	}
	if worst := probe.Quantile(took, 1); what != "undisturbed" {
		t.worst = max(t.worst, worst)
	}
	fmt.Printf("  %-36s %d calls, POST → last webhook %s, at most %.1f s\n",
		what, len(took), probe.Spread(took), probe.Quantile(took, 1).Seconds())
	return nil
}

// post places one call. The POST can fail while a replica is lost, so post repeats it with the same
// idempotency key.
func (t *takeovers) post(ctx context.Context, to string) error {
	body := map[string]any{"agent_id": t.workspace.AgentID, "to": to, "idempotency_key": "takeover " + to}
	return kit.Until(ctx, time.Minute, "POST /v1/calls is accepted", func() (bool, error) {
		status, answer, err := t.workspace.API.Do(ctx, http.MethodPost, "/v1/calls", body)
		switch {
		case err != nil, status == http.StatusServiceUnavailable, status == http.StatusConflict:
			return false, ctx.Err()
		case status == http.StatusAccepted, status == http.StatusOK:
			return true, nil
		}
		return false, fmt.Errorf("POST /v1/calls: %d %s", status, answer)
	})
}

func lastWebhooks(hooks *kit.Receiver, w *kit.Workspace) map[string]time.Time {
	at := map[string]time.Time{}
	for _, d := range hooks.Deliveries(w.ID) {
		if d.Type == "call.ringing" || d.Type == "call.answered" {
			continue
		}
		var event struct {
			Data struct {
				To string `json:"to"`
			} `json:"data"`
		}
		if err := json.Unmarshal(d.Body, &event); err != nil {
			continue
		}
		if first, seen := at[event.Data.To]; !seen || d.At.Before(first) {
			at[event.Data.To] = d.At
		}
	}
	return at
}
