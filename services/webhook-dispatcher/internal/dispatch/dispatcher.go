// Package dispatch sends deliveries. It claims due deliveries, limits the requests in flight of
// each endpoint, sends each attempt in its own goroutine, and stores the results in batches.
package dispatch

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"

	"ringfence.dev/libs/failpoint"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

// Config is the configuration of the dispatcher.
type Config struct {
	// RetryDelays are the delays before the second and each later attempt, in ascending order.
	RetryDelays []time.Duration `env:"RETRY_DELAYS" envDefault:"60s,120s,240s,480s" help:"Delays before the second and each later attempt of a delivery, in ascending order. Four delays mean five attempts."`
	// Lease is the time after a claim in which no other process can claim the delivery. Lease must
	// be longer than WEBHOOK_TIMEOUT by at least store.StartLimit.
	Lease time.Duration `env:"WEBHOOK_LEASE" envDefault:"20s" help:"How long a process owns a delivery that it claimed. If the process is killed, another process sends the delivery after this time. It must be longer than WEBHOOK_TIMEOUT by 5s or by a fifth of the lease, whichever is less, so that two processes never send one attempt."`
	// MaxInFlight is the maximum number of requests in flight.
	MaxInFlight int `env:"WEBHOOK_MAX_IN_FLIGHT" envDefault:"512" help:"Maximum number of requests in flight of one process. Further deliveries wait in the queue."`
	// Poll is the interval at which the queue is read even if the dispatcher is not woken.
	Poll time.Duration `env:"WEBHOOK_POLL" envDefault:"1s" help:"Interval at which the queue is read for due deliveries. New events do not wait for it. Retries can be late by this time."`
	// Rule decides when a subscription is disabled.
	Rule subscriptions.FailureRule
}

const (
	batchSize = 256
	// The backlog is counted once in each gaugeInterval. The count includes at most
	// backlogEndpoints endpoints and ends at backlogRows deliveries.
	gaugeInterval    = 5 * time.Second
	backlogEndpoints = 1000
	backlogRows      = 50_000
	drainTimeout     = 15 * time.Second
)

// Dispatcher sends deliveries. It can run in any number of replicas.
type Dispatcher struct {
	store    *store.Store
	client   *Client
	cfg      Config
	schedule Schedule
	limits   *endpointLimits
	metrics  *metrics

	wake    chan struct{}
	results chan deliveries.Result
	sending sync.WaitGroup
	health  healthChecks
}

// New returns a dispatcher.
func New(st *store.Store, client *Client, cfg Config, reg prometheus.Registerer) *Dispatcher {
	return &Dispatcher{
		store: st, client: client, cfg: cfg, schedule: Schedule{Delays: cfg.RetryDelays},
		limits: newLimits(cfg.MaxInFlight, client.PerHost()), metrics: newMetrics(reg),
		wake: make(chan struct{}, 1), results: make(chan deliveries.Result, batchSize),
		health: healthChecks{waiting: map[uuid.UUID]store.SubscriptionHealth{}},
	}
}

// Wake makes the dispatcher poll for due deliveries now. It does not block.
func (d *Dispatcher) Wake() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Add makes the dispatcher claim due deliveries of these subscriptions without a poll. It does not
// block.
func (d *Dispatcher) Add(due []store.Due) { d.limits.addDue(due) }

// Run sends deliveries until ctx ends. Then it claims no more deliveries, waits for the requests in
// flight, and stores their results.
func (d *Dispatcher) Run(ctx context.Context) error {
	completing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var background, completed sync.WaitGroup
	completed.Go(func() { d.completeLoop(completing) })
	background.Go(func() { d.gaugeLoop(ctx) })

	d.claimLoop(ctx)

	background.Wait()
	// after drainTimeout, results are no longer stored, and their deliveries are sent again when
	// their leases have ended
	timer := time.AfterFunc(drainTimeout, stop)
	defer timer.Stop()
	d.sending.Wait()
	close(d.results)
	completed.Wait()
	d.client.Close()
	return nil
}

// startAttempt sends a claimed attempt in a new goroutine.
func (d *Dispatcher) startAttempt(ctx context.Context, r *request, w deliveries.Work) {
	d.metrics.inflight.Inc()
	d.sending.Go(func() {
		defer d.metrics.inflight.Dec()
		var result deliveries.Result
		if w.Lost {
			d.metrics.interrupted.Inc()
			result = deliveries.Result{
				DeliveryID: w.DeliveryID, Attempt: w.Attempt, Replay: w.Replay, Outcome: deliveries.OutcomeFailed,
				Response: deliveries.Response{Failure: deliveries.Interrupted, At: w.DueAt},
			}
		} else {
			result = d.attempt(context.WithoutCancel(ctx), w, r.delayedByEndpoint)
		}
		// A request counts as in flight until its result is in the channel. So if the database is
		// slow, fewer deliveries are claimed, and results do not wait longer than their leases.
		d.results <- result
		d.limits.endRequest(r, result.Response)
	})
}

func (d *Dispatcher) attempt(ctx context.Context, w deliveries.Work, slowed bool) deliveries.Result {
	attrs := []attribute.KeyValue{
		attribute.String("webhook.delivery_id", w.DeliveryID.String()), attribute.String("webhook.subscription_id",
			w.SubscriptionID.String()),
		attribute.String("webhook.event_id", w.EventID.String()), attribute.String("webhook.event_type", w.EventType),
		attribute.Int("webhook.attempt", w.Attempt),
	}
	switch {
	case w.CallID == nil:
	case strings.HasPrefix(w.EventType, "call_request."):
		attrs = append(attrs, telemetry.CallRequestID(w.CallID.String()))
	case strings.HasPrefix(w.EventType, "call."):
		attrs = append(attrs, telemetry.CallID(w.CallID.String()))
	}
	ctx, span := telemetry.Continue(ctx, "webhook attempt", w.Traceparent, w.Age, attrs...)
	defer span.End()

	response := d.client.Send(ctx, w)
	failpoint.Inject("webhook-dispatcher: after send")

	result := d.resultOf(w, response)
	d.metrics.attempt(ctx, w, slowed, result)
	span.SetAttributes(attribute.Int("http.response.status_code", response.Code), attribute.String("webhook.outcome",
		string(result.Outcome)))
	if response.Failure != "" {
		span.SetStatus(codes.Error, string(response.Failure))
	}
	slog.LogAttrs(ctx, slog.LevelInfo, "webhook attempt finished", logAttrs(w, response, result)...)
	return result
}

// logAttrs returns the log attributes of an attempt. It omits failure if the attempt succeeded, and
// retry_in if no retry follows.
func logAttrs(w deliveries.Work, response deliveries.Response, result deliveries.Result) []slog.Attr {
	attrs := []slog.Attr{
		slog.Any("delivery_id", w.DeliveryID), slog.Any("subscription_id", w.SubscriptionID),
		slog.String("event_type", w.EventType),
		slog.Any("attempt", w.Attempt), slog.Any("outcome", result.Outcome), slog.Int("code", response.Code),
		slog.Int64("ms", response.Duration.Milliseconds()), slog.Int64("lag_ms", w.ClaimDelay.Milliseconds()),
	}
	if response.Failure != "" {
		attrs = append(attrs, slog.String("failure", string(response.Failure)))
	}
	if result.Delay > 0 {
		attrs = append(attrs, slog.String("retry_in", result.Delay.String()))
	}
	return attrs
}

func (d *Dispatcher) resultOf(w deliveries.Work, response deliveries.Response) deliveries.Result {
	result := deliveries.Result{DeliveryID: w.DeliveryID, Attempt: w.Attempt, Replay: w.Replay, Response: response,
		Outcome: deliveries.OutcomeDelivered}
	if response.Failure == "" {
		return result
	}
	wait, again := d.schedule.Next(w.Attempt, 2*rand.Float64()-1, response.RetryAfter)
	if !again {
		result.Outcome = deliveries.OutcomeFailed
		return result
	}
	result.Outcome, result.Delay = deliveries.OutcomeRetry, wait
	return result
}

func (d *Dispatcher) gaugeLoop(ctx context.Context) {
	for ctx.Err() == nil {
		backlog, err := d.store.CountBacklog(ctx, d.limits.dueQuotas(backlogEndpoints), backlogRows)
		switch {
		case err == nil:
			d.metrics.backlog(backlog)
		case ctx.Err() == nil:
			slog.WarnContext(ctx, "webhook backlog not counted", "error", err)
		}
		sleep(ctx, gaugeInterval)
	}
}

func sleep(ctx context.Context, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}
