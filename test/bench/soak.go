package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"ringfence.dev/test/bench/internal/probe"
)

const (
	// goalWebhookClaim limits the p99 of the duration of claims in the last minute. It is a multiple
	// of the p99 in the first minute.
	goalWebhookClaim = 1.5
	// The shares of two endpoints in the rate of records. The first refuses every first attempt.
	// The second gets the records of each second in one burst, which exceeds its limit of
	// concurrent requests.
	refusedShare, burstShare = 0.02, 0.08
	leastBurst               = 40
	// retryDelay is longer than the first delay of RETRY_DELAYS with its jitter.
	retryDelay = 75 * time.Second
)

// Soak publishes for a long time at half of the rate at which a backlog is delivered. It compares
// the durations of the dispatcher's claims in the last minute to those in the first minute.
func Soak(ctx context.Context, h *WebhookStack) error {
	if h.backlogRate == 0 {
		if err := h.backlogOf(ctx, 1); err != nil {
			return err
		}
	}
	rate := h.backlogRate / 2
	if rate < 1 {
		return errNothing
	}
	var all [3]*endpoint
	for n, way := range []string{Take, Refuse, Take} {
		e, err := h.subscribe(ctx, way, h.lane(), n)
		if err != nil {
			return err
		}
		e.source.sent, all[n] = newPublished(), e
	}
	// The first measured minute must contain retries, like the last minute.
	warm := min(retryDelay, h.Soak/2)
	fmt.Printf("  %.0f records a second for %s, after %s that do not count\n", rate, h.Soak, warm)
	first, last, err := h.soak(ctx, warm, rate, all)
	if err != nil {
		return err
	}
	return h.printSoak(ctx, all, first, last)
}

func (h *WebhookStack) soak(ctx context.Context, warm time.Duration, rate float64, all [3]*endpoint) (first, last window, err error) {
	soaking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var parts sync.WaitGroup
	part := func(run func() error) {
		parts.Go(func() {
			if err := run(); err != nil {
				cancel(err)
			}
		})
	}
	part(func() error {
		return h.publishEvenly(soaking, warm+h.Soak, rate*(1-refusedShare-burstShare), all[0].source)
	})
	part(func() error { return h.publishEvenly(soaking, warm+h.Soak, max(1, rate*refusedShare), all[1].source) })
	part(func() error {
		return h.publishBursts(soaking, warm+h.Soak, max(leastBurst, int(rate*burstShare)), all[2].source)
	})
	part(func() (err error) {
		minute := min(time.Minute, h.Soak/2)
		if err = webhookPause(soaking, warm); err != nil {
			return err
		}
		if first, err = h.look(soaking, minute); err != nil {
			return err
		}
		if err = webhookPause(soaking, h.Soak-2*minute); err != nil {
			return err
		}
		last, err = h.look(soaking, minute)
		return err
	})
	parts.Wait()
	return first, last, context.Cause(soaking)
}

// publishBursts publishes the given number of records at once, every second.
func (h *WebhookStack) publishBursts(ctx context.Context, long time.Duration, size int, from *source) error {
	began := time.Now()
	for n := 0; time.Duration(n)*time.Second < long; n++ {
		if err := webhookPause(ctx, time.Duration(n)*time.Second-time.Since(began)); err != nil {
			return err
		}
		for range size {
			from.sent.send(ctx, h.bus, from.next())
		}
	}
	return nil
}

var errRestarted = errors.New("the dispatcher was restarted during the soak")

func (h *WebhookStack) printSoak(ctx context.Context, all [3]*endpoint, first, last window) error {
	for n, e := range all {
		if err := e.source.sent.wait(); err != nil {
			return err
		}
		attempt, timeout := 1, webhooksStuck
		if n == 1 {
			attempt, timeout = 2, retryDelay
		}
		if err := h.awaitArrivals(ctx, e.lane, attempt*len(e.source.sent.acked), timeout); err != nil {
			return err
		}
		arrivals, err := h.receiver.Arrivals(ctx, e.lane)
		if err != nil {
			return err
		}
		got := e.source.sent.count(arrivals, attempt)
		says := []string{"steady", "refused first, claimed again", "in bursts"}[n]
		until := []string{"first byte", "second attempt", "first byte"}[n]
		fmt.Printf("    %-30s %7d arrived, %d missing, %d twice; acknowledged → %s %s\n", says, got.arrived, got.missing, got.twice, until, probe.Spread(got.took))
		if err := e.drop(ctx); err != nil {
			return err
		}
	}
	if first.claims.Count < 1 || last.claims.Count < 1 {
		return errRestarted
	}
	times := last.claims.Quantile(0.99) / first.claims.Quantile(0.99)
	fmt.Printf("    %-30s %s\n    %-30s %s\n", "claims, first minute", first.claims, "claims, last minute", last.claims)
	fmt.Printf("    %-30s %.2f x   %s; of their means %.2f x\n", "p99 of the last, of the first", times, probe.AtMost(times, goalWebhookClaim, "x"), last.claims.Mean()/first.claims.Mean())
	fmt.Printf("    %-30s %s\n    %-30s %s\n", "delivery_queue, first minute", first.queue, "delivery_queue, last minute", last.queue)
	return nil
}

const claimSeconds = "ringfence_webhooks_claim_duration_seconds"

func (h *WebhookStack) claims(ctx context.Context) (probe.Histogram, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.private+"/metrics", nil)
	if err != nil {
		return probe.Histogram{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return probe.Histogram{}, fmt.Errorf("read the dispatcher's metrics: %w", err)
	}
	defer resp.Body.Close()
	return probe.Parse(resp.Body, claimSeconds)
}

type queue struct{ samples, live, dead, most, bytes, vacuums int64 }

const queueSize = `
SELECT n_live_tup, n_dead_tup, pg_total_relation_size(relid), autovacuum_count
FROM pg_stat_user_tables WHERE schemaname = 'webhook_dispatcher' AND relname = 'delivery_queue'`

func (q queue) String() string {
	n := max(q.samples, 1)
	return fmt.Sprintf("%d dead tuples on average, %d at most; %d live; %.1f MB with its indexes; vacuumed %d times so far", q.dead/n, q.most, q.live/n, float64(q.bytes)/1e6, q.vacuums)
}

type window struct {
	claims probe.Histogram
	queue  queue
}

func (h *WebhookStack) look(ctx context.Context, long time.Duration) (w window, err error) {
	before, err := h.claims(ctx)
	if err != nil {
		return w, err
	}
	for began := time.Now(); time.Since(began) < long; {
		var live, dead int64
		if err := h.db.QueryRow(ctx, queueSize).Scan(&live, &dead, &w.queue.bytes, &w.queue.vacuums); err != nil {
			return w, err
		}
		w.queue.samples++
		w.queue.live, w.queue.dead, w.queue.most = w.queue.live+live, w.queue.dead+dead, max(w.queue.most, dead)
		if err := webhookPause(ctx, min(2*time.Second, max(0, long-time.Since(began)))); err != nil {
			return w, err
		}
	}
	after, err := h.claims(ctx)
	w.claims = after.Less(before)
	return w, err
}
