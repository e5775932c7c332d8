// Package dispatching owns the flow of deliveries: it claims what is due, fairly over the subscriptions, sends each
// attempt in a goroutine of its own, and settles the results in batches. What one attempt is, is sending's.
package dispatching

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"

	"ringfence.dev/libs/crash"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
	"ringfence.dev/services/webhook-dispatcher/internal/sending"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscription"
)

// Config is the dispatching part of the environment.
type Config struct {
	// RetryDelays are the waits before the second and each later attempt; they rise.
	RetryDelays []time.Duration `env:"RETRY_DELAYS" envDefault:"60s,120s,240s,480s" help:"rising waits before the second and each later attempt"`
	// Lease is how long a claimed attempt belongs to one process; it exceeds WEBHOOK_TIMEOUT by store.StartLimit.
	Lease time.Duration `env:"WEBHOOK_LEASE" envDefault:"20s" help:"how long a claimed attempt belongs to one process; longer than WEBHOOK_TIMEOUT by a fifth of itself, or by 5s"`
	// MaxInFlight bounds the requests open at once.
	MaxInFlight int `env:"WEBHOOK_MAX_IN_FLIGHT" envDefault:"512" help:"requests open at once"`
	// Poll is how often the queue is looked at unasked.
	Poll time.Duration `env:"WEBHOOK_POLL" envDefault:"1s" help:"how often the queue is looked at unasked"`
	// Rule is when an endpoint is switched off.
	Rule subscription.FailureRule
}

const (
	batchSize = 256
	// sweepEvery is the interval of reading the gauges and of looking for lost last attempts.
	sweepEvery = 5 * time.Second
	// emptySweep is the interval while no delivery is open.
	emptySweep = 3 * sweepEvery
	// maxCounted bounds what the gauge of open deliveries costs: each state is counted up to it.
	maxCounted = 50_000
	drainFor   = 15 * time.Second
)

// Dispatcher works the queue of one schema together with the other replicas.
type Dispatcher struct {
	store    *store.Store
	client   *sending.Client
	cfg      Config
	schedule delivery.Schedule
	lanes    *lanes
	metrics  *metrics

	wake    chan struct{}
	results chan delivery.Result
	sending sync.WaitGroup
	judging judging

	// Of the claiming goroutine: where the walk along the queue goes on, the present one if it is not over, when the next may begin,
	// and when other replicas were last told of work.
	after  uuid.UUID
	around *round
	rest   time.Time
	told   time.Time
}

// New makes a dispatcher.
func New(st *store.Store, client *sending.Client, cfg Config, reg prometheus.Registerer) *Dispatcher {
	return &Dispatcher{
		store: st, client: client, cfg: cfg, schedule: delivery.Schedule{Delays: cfg.RetryDelays},
		lanes: newLanes(cfg.MaxInFlight, client.PerHost()), metrics: newMetrics(reg),
		wake: make(chan struct{}, 1), results: make(chan delivery.Result, batchSize), judging: judging{waiting: map[uuid.UUID]store.Standing{}},
	}
}

// Wake says that there may be something due. It never blocks; without it the poll finds the work.
func (d *Dispatcher) Wake() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Run dispatches until ctx ends. Then it claims no more,
// waits for the requests in flight, and stores their results.
func (d *Dispatcher) Run(ctx context.Context) error {
	settling, stopSettling := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSettling()
	var background, settled sync.WaitGroup
	settled.Go(func() { d.settleAll(settling) })
	background.Go(func() { d.listen(ctx) })
	background.Go(func() { d.sweep(ctx) })
	d.claimAll(ctx)

	background.Wait()
	late := time.AfterFunc(drainFor, stopSettling) // the database is away: the leases bring the work back
	defer late.Stop()
	d.sending.Wait()
	close(d.results)
	settled.Wait()
	d.client.Close()
	return nil
}

// launch sends the attempt whose seat is taken.
func (d *Dispatcher) launch(ctx context.Context, w delivery.Work) {
	d.metrics.inflight.Inc()
	d.sending.Go(func() {
		defer d.metrics.inflight.Dec()
		flight := d.lanes.begin(w)
		result := d.attempt(context.WithoutCancel(ctx), w, flight.held)
		// The seat is given back behind the result: a database that is slower than the endpoints slows the claims, and no result waits
		// until its lease has passed.
		d.results <- result
		d.lanes.end(flight, result.Answer)
	})
}

// attempt sends once and says what follows from the answer. held: it waited for its endpoint.
func (d *Dispatcher) attempt(ctx context.Context, w delivery.Work, held bool) delivery.Result {
	attrs := []attribute.KeyValue{
		attribute.String("webhook.delivery_id", w.DeliveryID.String()), attribute.String("webhook.subscription_id", w.SubscriptionID.String()),
		attribute.String("webhook.event_id", w.EventID.String()), attribute.String("webhook.event_type", w.EventType),
		attribute.Int("webhook.attempt", w.Attempt),
	}
	if w.CallID != nil {
		attrs = append(attrs, telemetry.CallID(w.CallID.String()))
	}
	ctx, span := telemetry.Continue(ctx, "webhook attempt", w.Traceparent, w.Waited, attrs...)
	defer span.End()

	answer := d.client.Send(ctx, w)
	crash.Point("webhook-dispatcher: after send")

	result := d.judge(w, answer)
	d.metrics.attempt(ctx, w, held, result)
	span.SetAttributes(attribute.Int("http.response.status_code", answer.Code), attribute.String("webhook.outcome", string(result.Outcome)))
	if answer.Failure != "" {
		span.SetStatus(codes.Error, string(answer.Failure))
	}
	slog.LogAttrs(ctx, slog.LevelInfo, "webhook attempt", logAttrs(w, answer, result)...)
	return result
}

// logAttrs describes an attempt. The attributes failure and retry_in are left out if there was no
// failure and if there is no retry.
func logAttrs(w delivery.Work, answer delivery.Answer, result delivery.Result) []slog.Attr {
	attrs := []slog.Attr{
		slog.Any("delivery_id", w.DeliveryID), slog.Any("subscription_id", w.SubscriptionID),
		slog.String("event_type", w.EventType),
		slog.Any("attempt", w.Attempt), slog.Any("outcome", result.Outcome), slog.Int("code", answer.Code),
		slog.Int64("ms", answer.Took.Milliseconds()), slog.Int64("lag_ms", w.Lag.Milliseconds()),
	}
	if answer.Failure != "" {
		attrs = append(attrs, slog.String("failure", string(answer.Failure)))
	}
	if result.Delay > 0 {
		attrs = append(attrs, slog.String("retry_in", result.Delay.String()))
	}
	return attrs
}

func (d *Dispatcher) judge(w delivery.Work, answer delivery.Answer) delivery.Result {
	result := delivery.Result{DeliveryID: w.DeliveryID, Attempt: w.Attempt, Replay: w.Replay, Answer: answer, Outcome: delivery.Done}
	if answer.Failure == "" {
		return result
	}
	wait, again := d.schedule.Next(w.Attempt, 2*rand.Float64()-1, answer.RetryAfter)
	if !again {
		result.Outcome = delivery.Over
		return result
	}
	result.Outcome, result.Delay = delivery.Again, wait
	return result
}

// listen wakes on the notices of other replicas and of the API; while it cannot, the poll does.
func (d *Dispatcher) listen(ctx context.Context) {
	for ctx.Err() == nil {
		if err := d.store.Listen(ctx, d.Wake); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "listen for webhook work", "error", err)
		}
		pause(ctx, d.cfg.Poll)
	}
}

// sweep keeps the gauges and ends deliveries whose last attempt was lost with its process.
func (d *Dispatcher) sweep(ctx context.Context) {
	for ctx.Err() == nil {
		lost, next := d.look(ctx)
		for _, result := range lost {
			d.metrics.interrupted.Inc()
			select {
			case d.results <- result:
			case <-ctx.Done():
				return
			}
		}
		pause(ctx, next)
	}
}

// look reads the gauges from the queue, and the deliveries that were lost, if any. next is the time
// until the next look.
func (d *Dispatcher) look(ctx context.Context) (lost []delivery.Result, next time.Duration) {
	next = sweepEvery
	depth, err := d.store.Depth(ctx, d.schedule.Attempts(), maxCounted)
	if err == nil {
		d.metrics.depth(depth)
	}
	if err == nil && depth.Lost > 0 {
		lost, err = d.store.Lost(ctx, d.schedule.Attempts())
	}
	if err != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, "look for lost webhook attempts", "error", err)
	}
	if err == nil && depth.Due+depth.Future+depth.Held == 0 {
		next = emptySweep
	}
	return lost, next
}

func pause(ctx context.Context, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}
