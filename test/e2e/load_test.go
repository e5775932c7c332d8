package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringfence.dev/test/kit"
)

// load posts calls at a steady rate. Each call has its own number and idempotency key. A POST is
// repeated with the same key until its response has status 202 or 200.
type load struct {
	w     *kit.Workspace
	first int

	mu       sync.Mutex
	accepted map[string]string // request id → number
	answers  map[int]int       // status → number of responses; 0 means no response
	faults   []string
	wg       sync.WaitGroup
	open     atomic.Int64
}

// At most the POST requests of ten seconds can be open at the same time. On a slow machine this
// limit lowers the rate.
const maxOpenSeconds = 10

// After ctx has ended, run waits until every open POST request has a response.
func (l *load) run(ctx context.Context, t *testing.T, perSecond int) {
	t.Helper()
	l.accepted, l.answers = map[string]string{}, map[int]int{}
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for n := l.first; ; n++ {
		select {
		case <-ctx.Done():
			l.wg.Wait()
			return
		case <-tick.C:
			if l.open.Load() >= int64(maxOpenSeconds*perSecond) {
				n--
				continue
			}
			l.open.Add(1)
			l.wg.Go(func() {
				defer l.open.Add(-1)
				l.place(context.WithoutCancel(ctx), number(n))
			})
		}
	}
}

func (l *load) place(ctx context.Context, to string) {
	body := map[string]any{"agent_id": l.w.AgentID, "to": to, "idempotency_key": "key-" + to}
	again := time.Now()
	err := kit.Until(ctx, kit.HangTimeout, "POST for "+to+" is accepted", func() (bool, error) {
		if time.Now().Before(again) {
			return false, nil
		}
		status, answer, err := l.w.API.Do(ctx, "POST", "/v1/calls", body)
		if err != nil {
			status = 0
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.answers[status]++
		switch status {
		case 202, 200:
			var req kit.Request
			if err := json.Unmarshal(answer, &req); err != nil {
				return false, err
			}
			l.accepted[req.ID] = to
			return true, nil
		case 0, 503:
			// wait before the retry, because an immediate retry only adds load
			again = time.Now().Add(300 * time.Millisecond)
			return false, nil
		default:
			return false, fmt.Errorf("POST for %s: %d %s, want 202, 200 or 503", to, status, answer)
		}
	})
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.faults = append(l.faults, err.Error())
	}
}

func (l *load) count(status int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answers[status]
}

func (l *load) id(to string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, number := range l.accepted {
		if number == to {
			return id
		}
	}
	return ""
}

// check reports responses with a status that no client should receive.
func (l *load) check(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Logf("answers %v (0: none), accepted %d", l.answers, len(l.accepted))
	for _, fault := range l.faults {
		t.Error(fault)
	}
}

// progress prints the number of finished trials every 5 s. go test shows these lines with -v.
type progress struct {
	what       string
	all        int
	mu         sync.Mutex
	done       int
	reportedAt time.Time
	began      time.Time
}

func newProgress(what string, all int) *progress {
	return &progress{what: what, all: all, reportedAt: time.Now(), began: time.Now()}
}

func (p *progress) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	if time.Since(p.reportedAt) < 5*time.Second {
		return
	}
	p.reportedAt = time.Now()
	fmt.Fprintf(os.Stdout, "  %s: %d of %d after %s\n", p.what, p.done, p.all, time.Since(p.began).Round(time.Second))
}
