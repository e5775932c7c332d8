package dispatch

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/failpoint"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

const (
	// pollRows is the maximum number of deliveries that one poll reads. listSize is the maximum
	// number of subscriptions that one call of ListDue reads.
	pollRows = 1000
	listSize = 256
	// Each poll reads the end of the previous period again, because a delivery can be committed after
	// its due time. These constants are the lengths of this overlap.
	wakeOverlap      = 200 * time.Millisecond // after Wake
	pollOverlap      = 5 * time.Second        // at each poll interval
	longOverlap      = time.Minute            // once in each longPollInterval
	longPollInterval = 30 * time.Second
	// listInterval is the interval at which all active subscriptions with due deliveries are
	// listed. The list finds deliveries that a poll missed because they were committed more than
	// longOverlap after their due time.
	listInterval = 10 * time.Minute
	// minRoundInterval is the minimum time between two rounds of the claim loop, so that one claim
	// reads the deliveries for several requests.
	minRoundInterval = 3 * time.Millisecond
	claimTimeout     = 5 * time.Second
)

// claimLoop runs until ctx ends. It polls for due deliveries when it is woken and once in each poll
// interval. Whenever the limit of an endpoint allows another request, it claims due deliveries of
// this endpoint.
func (d *Dispatcher) claimLoop(ctx context.Context) {
	ticker := time.NewTicker(d.cfg.Poll)
	defer ticker.Stop()
	poller := poller{store: d.store, limits: d.limits}
	var poll, tick bool
	poll = true
	for {
		started := time.Now()
		var err error
		if tick {
			d.limits.refreshEndpoints()
		}
		if poll || tick {
			err = poller.pollDue(ctx, tick)
		}
		if err == nil {
			poll, tick = false, false
			var claimed bool
			claimed, err = d.claimReady(ctx)
			poller.claimSent = poller.claimSent || claimed
		}
		if err != nil && ctx.Err() == nil {
			slog.ErrorContext(ctx, "webhook delivery claim failed", "error", err)
			poll = true
			select { // wait for the next poll interval, then claim again
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
		sleep(ctx, minRoundInterval-time.Since(started))
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
			poll = true
		case <-ticker.C:
			tick = true
		case <-d.limits.requestFreed:
		}
	}
}

type poller struct {
	store  *store.Store
	limits *endpointLimits
	// polledTo is the due time up to which the last poll read. It is zero before the first poll.
	polledTo         time.Time
	longAt, listedAt time.Time
	// claimSent is true if a claim was sent since the last poll.
	claimSent bool
}

// pollDue adds the endpoints that have deliveries due since the last poll to p.limits. At the first
// call and once in each listInterval, it adds every endpoint with due deliveries.
func (p *poller) pollDue(ctx context.Context, tick bool) error {
	if p.polledTo.IsZero() || time.Since(p.listedAt) > listInterval {
		return p.list(ctx)
	}
	overlap := wakeOverlap
	switch {
	case tick && time.Since(p.longAt) > longPollInterval:
		overlap, p.longAt = longOverlap, time.Now()
	case tick:
		overlap = pollOverlap
	}
	from := p.polledTo.Add(-overlap)
	idle := tick && !p.claimSent
	p.claimSent = false
	for position, more := (store.Position{DueAt: from}), true; more; {
		found, err := p.store.PollDue(ctx, store.Poll{After: position, ChangedSince: from, Limit: pollRows, Idle: idle})
		if err != nil {
			return err
		}
		p.limits.addDue(found.Due)
		p.polledTo, position, more = found.Next.DueAt, found.Next, found.More
	}
	return nil
}

func (p *poller) list(ctx context.Context) error {
	now, err := p.store.Now(ctx)
	if err != nil {
		return err
	}
	for after, more := uuid.Nil, true; more; {
		due, next, err := p.store.ListDue(ctx, after, listSize)
		if err != nil {
			return err
		}
		p.limits.addDue(due)
		after, more = next, next != uuid.Nil
	}
	p.polledTo, p.longAt, p.listedAt = now, time.Now(), time.Now()
	return nil
}

// claimReady claims deliveries until the limits of all endpoints with due deliveries are reached.
// claimed is true if at least one claim was sent.
func (d *Dispatcher) claimReady(ctx context.Context) (claimed bool, err error) {
	for ctx.Err() == nil {
		reserved := d.limits.reserveQuotas()
		if len(reserved) == 0 {
			return claimed, nil
		}
		claimed = true
		if err := d.claim(ctx, reserved); err != nil {
			return claimed, err
		}
	}
	return claimed, nil
}

func (d *Dispatcher) claim(ctx context.Context, reserved []reservation) error {
	started := time.Now()
	// The claim increases the attempt numbers, so the claimed deliveries must be sent even if ctx
	// ends during the claim. Therefore the statement does not use ctx.
	claiming, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(claimTimeout, store.StartLimit(d.cfg.Lease)))
	claimed, err := d.store.ClaimDue(claiming, store.Claim{
		Quotas: quotasOf(reserved), Lease: d.cfg.Lease, Attempts: d.schedule.Attempts(),
	})
	cancel()
	if err != nil {
		d.limits.cancelQuotas(reserved)
		return err
	}
	d.metrics.claimSeconds.Observe(time.Since(started).Seconds())
	if len(claimed.Work) > 0 {
		failpoint.Inject("webhook-dispatcher: after claim")
	}
	requests, work, back := d.limits.startRequests(reserved, claimed)
	for i, w := range work {
		d.startAttempt(ctx, requests[i], w)
	}
	if len(back) > 0 {
		d.releaseClaimed(ctx, back)
	}
	return nil
}

// releaseClaimed returns claimed deliveries to the queue, because the limits do not allow their
// requests.
func (d *Dispatcher) releaseClaimed(ctx context.Context, work []deliveries.Work) {
	releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	// after an error, the deliveries are due again when their leases end
	if err := d.store.Release(releasing, work); err != nil {
		slog.WarnContext(ctx, "webhook deliveries not returned to the queue", "deliveries", len(work), "error", err)
	}
}
