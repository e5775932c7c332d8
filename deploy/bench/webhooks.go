package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"ringfence.dev/deploy/bench/internal/figure"
	"ringfence.dev/deploy/e2e/rig"
)

const callsPerSecond = 10

// webhooks prints how long after the POST was sent its first and its last webhook arrived, with simulated
// time at zero, at a rate that leaves the machine idle.
func webhooks(ctx context.Context, b *bench) error {
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
	err = rig.Until(ctx, time.Minute, "every call's last webhook arrives", func() (bool, error) {
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
	fmt.Printf("POST → call.ringing      %8d calls %s\n", len(sent), figure.Spread(arrivals["call.ringing"]))
	fmt.Printf("POST → call.completed    %8d calls %s (charged and summed up before it is sent)\n", len(sent), figure.Spread(arrivals["call.completed"]))
	return nil
}

// postSteadily posts at callsPerSecond for the time of one measurement: number → when the POST was sent.
func postSteadily(ctx context.Context, long time.Duration, w *rig.Workspace) (map[string]time.Time, error) {
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
