package main

import (
	"context"
	"fmt"
	"time"

	"ringfence.dev/test/bench/internal/probe"
	"ringfence.dev/test/kit"
)

const (
	// The long queue has queueFactor times as many deliveries as the backlog: 1,000,000 by default.
	queueFactor = 50
	// togglePause is the time between two changes of the second subscription. It is so long that the
	// API key stays within its rate limit.
	togglePause = 400 * time.Millisecond
	// goalToggled limits the p99 of the observed subscription while a second subscription is paused
	// and resumed. It is a multiple of the p99 without such changes.
	goalToggled  = 1.5
	deletionTime = 10 * time.Minute
)

// fillWebhookQueue inserts deliveries of one event that have been due for an hour. A poll finds
// them before the deliveries of other subscriptions.
const fillWebhookQueue = `
WITH event AS (
    INSERT INTO webhook_dispatcher.events (id, created_at, workspace_id, type, sequence, body)
    VALUES (gen_random_uuid(), now(), $1, 'call.completed', 1, '{}') RETURNING id, created_at)
INSERT INTO webhook_dispatcher.delivery_queue
    (delivery_id, created_at, workspace_id, subscription_id, event_id, event_type, sequence, due_at)
SELECT gen_random_uuid(), event.created_at, $1, $2, event.id, 'call.completed', 1, now() - interval '1 hour'
FROM event, generate_series(1, $3::int)`

// LongQueue measures one subscription while a second subscription is paused and resumed several
// times a second. The second subscription has a long queue, because its endpoint never responds.
// The goal compares the p99 to the p99 without the long queue.
func LongQueue(ctx context.Context, h *WebhookStack) error {
	observed, err := h.subscribe(ctx, Take, h.lane(), 0)
	if err != nil {
		return err
	}
	toggled, err := h.subscribe(ctx, Hang, h.lane(), 1)
	if err != nil {
		return err
	}
	rows := queueFactor * h.Records
	var alone, beside []time.Duration
	changes := 0
	for _, toggles := range []bool{false, true, false} {
		if toggles {
			if err := h.fillQueue(ctx, toggled, rows); err != nil {
				return err
			}
		}
		got, n, err := h.besideChanges(ctx, observed, toggled, toggles)
		if err != nil {
			return err
		}
		if toggles {
			if err := h.deleteQueue(ctx, toggled); err != nil {
				return err
			}
		}
		if len(got.took) == 0 {
			return errNothing
		}
		if changes += n; toggles {
			beside = got.took
		} else {
			alone = append(alone, got.took...)
		}
		fmt.Printf("  %3d changes   %s; %d arrived, %d missing, %d twice\n",
			n, probe.Spread(got.took), got.arrived, got.missing, got.twice)
	}
	p99 := probe.Quantile(alone, 0.99)
	times := float64(probe.Quantile(beside, 0.99)) / float64(p99)
	fmt.Printf("  p99 beside %d changes of a subscription with %d due deliveries, of %.2f ms without   %.1f x   %s\n",
		changes, rows, probe.MS(p99), times, probe.AtMost(times, goalToggled, "x"))
	return observed.drop(ctx)
}

func (h *WebhookStack) fillQueue(ctx context.Context, e *endpoint, rows int) error {
	if _, err := h.db.Exec(ctx, fillWebhookQueue, e.workspace.ID, e.subscription, rows); err != nil {
		return fmt.Errorf("fill the queue: %w", err)
	}
	if _, err := h.db.Exec(ctx, `VACUUM (ANALYZE) webhook_dispatcher.delivery_queue`); err != nil {
		return fmt.Errorf("vacuum the queue: %w", err)
	}
	return nil
}

// deleteQueue deletes a subscription whose endpoint hangs. The dispatcher deletes the long queue in
// steps. deleteQueue waits until the queue is empty and no request to the endpoint is open.
func (h *WebhookStack) deleteQueue(ctx context.Context, e *endpoint) error {
	if err := e.drop(ctx); err != nil {
		return err
	}
	if err := h.awaitSettled(ctx, deletionTime); err != nil {
		return err
	}
	return kit.Until(ctx, hangingClosed, "no request to an endpoint that hangs is open", func() (bool, error) {
		count, err := h.receiver.Count(ctx, e.lane)
		return count.Open == 0, err
	})
}

func (h *WebhookStack) besideChanges(
	ctx context.Context, observed, toggled *endpoint, changing bool,
) (got countedRecords, changes int, err error) {
	observed.source.sent, toggled.source.sent = newPublished(), newPublished()
	rounds, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		for changing && rounds.Err() == nil {
			status := []string{"paused", "active"}[changes%2]
			if _, err := toggled.set(ctx, status); err != nil {
				ended <- err
				return
			}
			changes++
			_ = webhookPause(rounds, togglePause)
		}
		ended <- nil
	}()
	err = h.publishEvenly(ctx, 3*h.Each, neighbourRate, observed.source, toggled.source)
	cancel()
	if failed := <-ended; err == nil {
		err = failed
	}
	if err == nil && changing {
		_, err = toggled.set(ctx, "active")
	}
	if err != nil {
		return got, changes, err
	}
	got, err = h.arrived(ctx, observed)
	return got, changes, err
}
