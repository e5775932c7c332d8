package main

import (
	"context"
	"encoding/base32"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ringfence.dev/test/bench/internal/probe"
	"ringfence.dev/test/kit"
)

const (
	floodClients = 16
	// floodRate is the number of requests per second of each flood.
	floodRate = 1000
	// goalFlood limits the p99 during a flood of invalid keys. It is a multiple of the p99 during a
	// flood of requests that need no key.
	goalFlood = 3.0
	// floodedAddress is the client address of all requests. The stack's trusted proxy (loopback)
	// sets it in a header.
	floodedAddress = "203.0.113.40"
)

// refusalStatuses are the response statuses for an invalid key. Each second, ten requests with an
// invalid key from one client address get 401. Further requests get 429.
var refusalStatuses = []int{http.StatusTooManyRequests, http.StatusUnauthorized}

// measureFlood measures GET /v1/wallet during a flood of requests that need no key, and during an
// equal flood of requests with invalid keys from the same address. Only the second flood makes the
// gateway check keys.
func measureFlood(ctx context.Context, b *bench) error {
	w, err := b.stack.NewWorkspace(ctx, "bench flood", "10")
	if err != nil {
		return err
	}
	// In the first minute, the gateway accepts 600 requests with invalid keys from an address. The
	// bench sends these requests before the measurement.
	var serial atomic.Int64
	invented := func() string { return inventedKey(serial.Add(1)) }
	if err := b.useUpGuesses(ctx, invented); err != nil {
		return err
	}
	rounds := []struct {
		name, path string
		key        func() string
		want       []int
	}{
		{name: "alone"},
		{name: "beside /readyz", path: "/readyz", key: func() string { return "" }, want: []int{http.StatusOK}},
		{name: "beside invented keys", path: "/v1/calls", key: invented, want: refusalStatuses},
	}
	p99 := map[string]time.Duration{}
	for _, round := range rounds {
		stop := func() (int64, error) { return 0, nil }
		if round.path != "" {
			stop = b.startFlood(ctx, round.path, round.key, round.want...)
		}
		took, fault := b.repeat(ctx, w)
		sent, err := stop()
		if fault != nil {
			return fault
		}
		if err != nil {
			return err
		}
		p99[round.name] = probe.Quantile(took, 0.99)
		fmt.Printf("  %-22s %s; the flood sent %d requests\n", round.name, probe.Spread(took), sent)
	}
	times := float64(p99["beside invented keys"]) / float64(p99["beside /readyz"])
	fmt.Printf("  p99 beside invented keys, of p99 beside /readyz   %.2f x   %s\n",
		times, probe.AtMost(times, goalFlood, "x"))
	return b.measureFirstUse(ctx, w, invented)
}

// measureFirstUse measures the first and the later requests with new keys, during a flood of
// requests with invalid keys.
func (b *bench) measureFirstUse(ctx context.Context, w *kit.Workspace, invented func() string) error {
	stop := b.startFlood(ctx, "/v1/calls", invented, refusalStatuses...)
	first, later, fault := b.useNewKeys(ctx, w)
	if _, err := stop(); err != nil {
		return err
	}
	if fault != nil {
		return fault
	}
	fmt.Printf("  first request of a new key beside invented keys   %s; the second %s\n",
		probe.Spread(first), probe.Spread(later))
	return nil
}

func (b *bench) useNewKeys(ctx context.Context, w *kit.Workspace) (first, later []time.Duration, err error) {
	for n := range 20 {
		var made struct {
			Key string `json:"key"`
		}
		body := map[string]any{"name": fmt.Sprint("bench ", n), "access": "read"}
		path := "/admin/v1/workspaces/" + w.ID + "/api-keys"
		if err := w.Admin.Into(ctx, http.MethodPost, path, body, http.StatusCreated, &made); err != nil {
			return nil, nil, err
		}
		a := b.fromFlooded("/v1/wallet", made.Key, http.StatusOK)
		for _, into := range []*[]time.Duration{&first, &later} {
			took, err := a.ask(ctx)
			if err != nil {
				return nil, nil, err
			}
			*into = append(*into, took)
		}
	}
	return first, later, nil
}

func (b *bench) repeat(ctx context.Context, w *kit.Workspace) (took []time.Duration, err error) {
	a := b.fromFlooded("/v1/wallet", w.WriteKey, http.StatusOK)
	for began := time.Now(); time.Since(began) < b.each || len(took) < 100; {
		one, err := a.ask(ctx)
		if err != nil {
			return nil, err
		}
		took = append(took, one)
		if err := rest(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return took, nil
}

func (b *bench) fromFlooded(path, key string, want int) *repeatedGet {
	a := b.withKey(&kit.Workspace{WriteKey: key}, path, want)
	a.forwardedFor = floodedAddress
	return a
}

// startFlood sends requests at floodRate until stop is called. Each response must have one of the
// wanted statuses. stop returns the number of requests and the first error.
func (b *bench) startFlood(
	ctx context.Context, path string, key func() string, want ...int,
) (stop func() (int64, error)) {
	ctx, cancel := context.WithCancel(ctx)
	var (
		clients sync.WaitGroup
		sent    atomic.Int64
		once    sync.Once
		fault   error
	)
	for range floodClients {
		clients.Go(func() {
			tick := time.NewTicker(time.Second * floodClients / floodRate)
			defer tick.Stop()
			client := &http.Client{Transport: &http.Transport{}, Timeout: 30 * time.Second}
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				status, err := b.floodRequest(ctx, client, path, key())
				if err == nil && !slices.Contains(want, status) {
					err = fmt.Errorf("GET %s: status %d, want one of %v", path, status, want)
				}
				if err != nil && ctx.Err() == nil {
					once.Do(func() { fault = err })
					return
				}
				sent.Add(1)
			}
		})
	}
	return func() (int64, error) {
		cancel()
		clients.Wait()
		return sent.Load(), fault
	}
}

func (b *bench) useUpGuesses(ctx context.Context, invented func() string) error {
	client := &http.Client{Timeout: 30 * time.Second}
	return kit.Until(ctx, time.Minute, "the address is over its limit", func() (bool, error) {
		for range 100 {
			status, err := b.floodRequest(ctx, client, "/v1/calls", invented())
			if status == http.StatusTooManyRequests || err != nil {
				return true, err
			}
		}
		return false, nil
	})
}

func (b *bench) floodRequest(ctx context.Context, client *http.Client, path, key string) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.stack.Demo.BaseURL+path, nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("X-Forwarded-For", floodedAddress)
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

func inventedKey(n int64) string {
	secret := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(fmt.Appendf(nil, "%032d", n))
	return "rf_live_00000000_" + strings.ToLower(secret)
}
