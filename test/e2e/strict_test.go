package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"ringfence.dev/test/kit"
)

// strictClient is a client that never repeats a request. Every unexpected response counts as a
// failed request.
type strictClient struct {
	w     *kit.Workspace
	first int

	mu       sync.Mutex
	accepted map[string]string // request id → number
	ids      []string
	took     map[string][]time.Duration // kind of request → durations
	failed   []string
	wg       sync.WaitGroup
}

// run sends POST requests until ctx ends. It also sends the same number of reads: earlier requests,
// lists, the wallet and the operator API. Then it waits for the open requests.
func (c *strictClient) run(ctx context.Context, perSecond int) {
	c.accepted, c.took = map[string]string{}, map[string][]time.Duration{}
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			c.wg.Wait()
			return
		case <-tick.C:
			whole := context.WithoutCancel(ctx)
			c.wg.Go(func() { c.place(whole, number(c.first+n)) })
			c.wg.Go(func() { c.look(whole, n) })
		}
	}
}

func (c *strictClient) place(ctx context.Context, to string) {
	body := map[string]any{"agent_id": c.w.AgentID, "to": to, "idempotency_key": "key-" + to}
	answer := c.sendOnce(ctx, c.w.API, "POST", "/v1/calls", body, 202)
	var req kit.Request
	if answer == nil || json.Unmarshal(answer, &req) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accepted[req.ID] = to
	c.ids = append(c.ids, req.ID)
}

func (c *strictClient) look(ctx context.Context, n int) {
	c.mu.Lock()
	id := ""
	if len(c.ids) > 0 {
		id = c.ids[rand.IntN(len(c.ids))]
	}
	c.mu.Unlock()
	switch {
	case n%5 == 0:
		c.sendOnce(ctx, c.w.API, "GET", "/v1/calls?limit=5", nil, 200)
	case n%5 == 1:
		c.sendOnce(ctx, c.w.API, "GET", "/v1/wallet", nil, 200)
	case n%5 == 2:
		c.sendOnce(ctx, c.w.Admin, "GET", "/admin/v1/workspaces/"+c.w.ID, nil, 200)
	case n%5 == 3:
		c.sendOnce(ctx, c.w.API, "GET", "/v1/webhook-subscriptions", nil, 200)
	case id != "":
		c.sendOnce(ctx, c.w.API, "GET", "/v1/call-requests/"+id, nil, 200)
	}
}

// sendOnce returns nil if the request failed.
func (c *strictClient) sendOnce(ctx context.Context, api *kit.Client, method, path string, body any, want int) []byte {
	began := time.Now()
	status, answer, err := api.Do(ctx, method, path, body)
	took := time.Since(began)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took[method] = append(c.took[method], took)
	switch {
	case err != nil:
		c.failed = append(c.failed, fmt.Sprintf("%s %s after %s at %s: %v", method, path, took.Round(time.Millisecond), began.Format("15:04:05.000"), err))
		return nil
	case status != want:
		c.failed = append(c.failed, fmt.Sprintf("%s %s after %s at %s: %d %s, want %d", method, path, took.Round(time.Millisecond), began.Format("15:04:05.000"), status, answer, want))
		return nil
	}
	return answer
}

func (c *strictClient) count() (all int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, took := range c.took {
		all += len(took)
	}
	return all
}

func (c *strictClient) check(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, method := range slices.Sorted(maps.Keys(c.took)) {
		took := c.took[method]
		slices.Sort(took)
		at := func(share float64) time.Duration {
			return took[int(share*float64(len(took)-1))].Round(time.Millisecond)
		}
		t.Logf("%d × %s: p50 %s, p99 %s, longest %s", len(took), method, at(.5), at(.99), at(1))
	}
	t.Logf("%d failed", len(c.failed))
	for _, one := range c.failed[:min(len(c.failed), 40)] {
		t.Error(one)
	}
}
