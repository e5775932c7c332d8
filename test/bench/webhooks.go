package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"sync"
	"time"

	"ringfence.dev/test/bench/internal/probe"
	"ringfence.dev/test/kit"
)

const callsPerSecond = 10

// measureWebhooks prints the time from a POST to its first and its last webhook. The carrier's time
// scale is zero, and the rate is so low that the machine is nearly idle.
func measureWebhooks(ctx context.Context, b *bench) error {
	hooks := b.hooks
	w, err := b.stack.NewWorkspace(ctx, "bench webhooks", "100000")
	if err != nil {
		return err
	}
	if _, err := w.Subscribe(ctx, hooks); err != nil {
		return err
	}
	sent, err := postSteadily(ctx, b.each, w)
	if err != nil {
		return err
	}
	err = kit.Until(ctx, time.Minute, "every call's last webhook arrives", func() (bool, error) {
		ended := 0
		for _, d := range hooks.Deliveries(w.ID) {
			if d.Type == "call.completed" {
				ended++
			}
		}
		return ended >= len(sent), nil
	})
	if err != nil {
		return err
	}
	arrivals := map[string][]time.Duration{}
	for _, d := range hooks.Deliveries(w.ID) {
		var event struct {
			Data struct {
				To string `json:"to"`
			} `json:"data"`
		}
		if err := json.Unmarshal(d.Body, &event); err != nil {
			return err
		}
		arrivals[d.Type] = append(arrivals[d.Type], d.At.Sub(sent[event.Data.To]))
	}
	fmt.Printf("POST → call.ringing      %8d calls %s\n", len(sent), probe.Spread(arrivals["call.ringing"]))
	fmt.Printf("POST → call.completed    %8d calls %s (charged and summed up before it is sent)\n", len(sent), probe.Spread(arrivals["call.completed"]))
	return nil
}

// postSteadily posts at callsPerSecond for the duration of one measurement. It returns the send
// time of each number's POST.
func postSteadily(ctx context.Context, long time.Duration, w *kit.Workspace) (map[string]time.Time, error) {
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		fault error
	)
	sent := map[string]time.Time{}
	tick := time.NewTicker(time.Second / callsPerSecond)
	defer tick.Stop()
	for n := range int(long.Seconds() * callsPerSecond) {
		<-tick.C
		to := fmt.Sprintf("+1415%05d%02d", n/90, n%90)
		mu.Lock()
		sent[to] = time.Now()
		mu.Unlock()
		wg.Go(func() {
			if _, err := w.Place(ctx, map[string]any{"to": to}); err != nil {
				mu.Lock()
				defer mu.Unlock()
				fault = err
			}
		})
	}
	wg.Wait()
	return sent, fault
}

// withWebhookStack returns a function that calls measure with the WebhookStack of the bench. If the
// bench has no WebhookStack yet, the function creates it first.
func withWebhookStack(measure func(context.Context, *WebhookStack) error) func(context.Context, *bench) error {
	return func(ctx context.Context, b *bench) (err error) {
		if b.webhookStack == nil {
			if b.webhookStack, err = OpenWebhooks(ctx, b.setup(b.stack, b.home, b.db)); err != nil {
				return err
			}
		}
		return measure(ctx, b.webhookStack)
	}
}

func (b *bench) setup(stack *kit.Stack, home, db string) WebhookSetup {
	return WebhookSetup{
		Stack: stack, Home: home, DB: db, CAFile: b.hooks.CAFile, KeyFile: b.hooks.KeyFile,
		Each: b.each, Soak: b.soak, Records: b.records,
	}
}

func idle(ctx context.Context, b *bench) error {
	return measureProxied(ctx, b, "idle", func(stack *kit.Stack, home, db string, proxy *probe.Proxy) error {
		house, err := OpenWebhooks(ctx, b.setup(stack, home, db))
		if err != nil {
			return err
		}
		defer house.Close()
		return Idle(ctx, house, proxy)
	})
}

func costs(ctx context.Context, b *bench) error {
	return measureProxied(ctx, b, "costs", func(stack *kit.Stack, _, db string, proxy *probe.Proxy) error {
		meter, err := probe.NewCPU(ctx, stack, db)
		if err != nil {
			return err
		}
		defer meter.Close()
		return probe.Measure(ctx, probe.Setup{Stack: stack, Proxy: proxy, Meter: meter, Hooks: b.hooks, DB: db})
	})
}

// measureProxied starts a separate stack with a separate Postgres. The stack connects to Postgres
// through a proxy that counts SQL statements. The URL db leads to Postgres without the proxy.
func measureProxied(ctx context.Context, b *bench, name string,
	measure func(stack *kit.Stack, home, db string, proxy *probe.Proxy) error) error {
	server, err := kit.StartPostgres(b.bin, "--durable")
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop() }()
	through, err := url.Parse(server.URL)
	if err != nil {
		return err
	}
	proxy, err := probe.Listen(through.Host)
	if err != nil {
		return err
	}
	defer proxy.Close()
	through.Host = proxy.Addr
	home := filepath.Join(b.home, name)
	stack, err := b.start(ctx, home, through.String())
	if err != nil {
		return err
	}
	defer func() { _ = stack.Stop() }()
	return measure(stack, home, server.URL, proxy)
}
