package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/test/bench/internal/probe"
	"ringfence.dev/test/kit"
)

const (
	steadyRate = 50.0
	// goalEach limits the CPU time of a delivery at the steady rate. It is a multiple of the CPU
	// time of a POST in the baseline loop, which sends the same webhooks without the product.
	goalEach = 90.0
	// goalDeliveryMS limits the CPU time of a delivery at the steady rate, in milliseconds.
	goalDeliveryMS = 2.5
	// goalPosts limits the time of a delivery. It is a multiple of the time of a direct POST, which
	// the bench sends without the product.
	goalPosts = 8.0
	// realCalls is the rate of the measurement with real calls, in calls per second. These calls
	// have about thirty events per second. The measured times begin when the service `calls`
	// inserts an event.
	realCalls = 10
)

// Steady measures deliveries at a low rate on an idle machine. It compares their CPU time and
// latency to POST requests that the bench sends directly to the receiver.
func Steady(ctx context.Context, h *WebhookStack) error {
	e, err := h.subscribe(ctx, Take, h.lane(), 0)
	if err != nil {
		return err
	}
	loop, err := h.bareLoop(ctx, h.Each/2)
	if err != nil {
		return err
	}
	before, err := h.directly(ctx, h.Each/2)
	if err != nil {
		return err
	}
	m, err := h.watch(ctx, false)
	if err != nil {
		return err
	}
	got, err := h.deliver(ctx, h.Each, steadyRate, e)
	if err != nil {
		return err
	}
	if err := h.awaitSettled(ctx, webhooksStuck); err != nil {
		return err
	}
	cpu, err := m.stop(ctx)
	if err != nil {
		return err
	}
	after, err := h.directly(ctx, h.Each/2)
	if err != nil {
		return err
	}
	if err := e.drop(ctx); err != nil {
		return err
	}
	if len(got.took) == 0 {
		return errNothing
	}
	answered, reached := append(before.answered, after.answered...), append(before.reached, after.reached...)
	times := float64(probe.Quantile(got.took, 0.5)) / float64(probe.Quantile(answered, 0.5))
	each, bare := cpu.perDelivery(got.arrived), probe.MS(loop.CPU)
	fmt.Printf("  direct POST over TLS         %s until the answer, %s until its first byte is read; %d at %.0f /s\n", probe.Spread(answered), probe.Spread(reached), len(answered), steadyRate)
	fmt.Printf("  acknowledged → first byte    %s; %d arrived, %d missing, %d twice\n", probe.Spread(got.took), got.arrived, got.missing, got.twice)
	fmt.Printf("    of a POST's p50            %.1f x   %s\n", times, probe.AtMost(times, goalPosts, "x"))
	fmt.Printf("  CPU a delivery               %.2f ms   %s; %s\n", each,
		cpu.verdictOrReason(probe.AtMost(each, goalDeliveryMS, " ms")), cpu.lines(got.arrived))
	fmt.Printf("    of the loop's %.3f ms     %.0f x   %s\n",
		bare, each/bare, cpu.verdictOrReason(probe.AtMost(each/bare, goalEach, "x")))
	return h.measureRealCalls(ctx)
}

var errNothing = errors.New("nothing arrived")

// directTimes contains two times of each POST request without the product: until the response, and
// until the receiver read the first byte.
type directTimes struct{ answered, reached []time.Duration }

func (h *WebhookStack) directly(ctx context.Context, long time.Duration) (d directTimes, err error) {
	lane := h.lane()
	s, err := h.sender(lane)
	if err != nil {
		return d, err
	}
	defer s.Close()
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		begun = map[uuid.UUID]time.Time{}
		start = time.Now()
	)
	for n := 0; time.Duration(n)*time.Second/steadyRate < long; n++ {
		if err := webhookPause(ctx, time.Duration(n)*time.Second/steadyRate-time.Since(start)); err != nil {
			return d, err
		}
		wg.Go(func() {
			id, at := uuid.New(), time.Now()
			fault := s.Post(ctx, id)
			took := time.Since(at)
			mu.Lock()
			defer mu.Unlock()
			begun[id], d.answered = at, append(d.answered, took)
			err = errors.Join(err, fault)
		})
	}
	wg.Wait()
	if err != nil {
		return d, err
	}
	arrivals, err := h.receiver.Arrivals(ctx, lane)
	for _, a := range arrivals {
		d.reached = append(d.reached, time.Duration(a.At-begun[a.Event].UnixNano()))
	}
	return d, err
}

// measureRealCalls measures the time from the insert of an event into the outbox of the service
// `calls` to the delivery. The insert precedes the COMMIT, so the figure is slightly too large.
func (h *WebhookStack) measureRealCalls(ctx context.Context) error {
	e, err := h.subscribe(ctx, Take, h.lane(), 0)
	if err != nil {
		return err
	}
	began := time.Now()
	tick := time.NewTicker(time.Second / realCalls)
	defer tick.Stop()
	var (
		wg     sync.WaitGroup
		number = int(h.Each.Seconds() * realCalls)
		faults = make([]error, number)
	)
	for n := range number {
		<-tick.C
		wg.Go(func() {
			_, faults[n] = e.workspace.Place(ctx, map[string]any{"to": fmt.Sprintf("+1415%05d%02d", n/90, n%90)})
		})
	}
	wg.Wait()
	if err := errors.Join(faults...); err != nil {
		return err
	}
	if err := h.ended(ctx, e); err != nil {
		return err
	}
	arrivals, err := h.receiver.Arrivals(ctx, e.lane)
	if err != nil {
		return err
	}
	put, err := h.insertTimes(ctx, e.workspace.ID, began, len(arrivals))
	if err != nil {
		return err
	}
	var took []time.Duration
	for _, a := range arrivals {
		if at, known := put[a.Event]; known {
			took = append(took, time.Duration(a.At-at.UnixNano()))
		}
	}
	fmt.Printf("  calls' commit → first byte   %s; %d events of %d real calls, %d a second, all services running\n",
		probe.Spread(took), len(took), number, realCalls)
	return e.drop(ctx)
}

const openCalls = `
SELECT EXISTS (SELECT FROM calls.call_requests WHERE workspace_id = $1 AND status IN ('queued', 'dialing'))
    OR EXISTS (SELECT FROM calls.calls WHERE workspace_id = $1 AND completes_at IS NOT NULL)
    OR EXISTS (SELECT FROM calls.outbox)`

func (h *WebhookStack) ended(ctx context.Context, e *endpoint) error {
	err := kit.Until(ctx, 2*time.Minute, "every call has ended", func() (bool, error) {
		var open bool
		err := h.db.QueryRow(ctx, openCalls, e.workspace.ID).Scan(&open)
		return !open, err
	})
	if err != nil {
		return err
	}
	// Wait until no webhook has arrived for 3 s.
	return h.awaitArrivals(ctx, e.lane, 1<<30, 3*time.Second)
}

// insertTimes returns for each event of a workspace when the service `calls` inserted it into its
// outbox.
func (h *WebhookStack) insertTimes(ctx context.Context, workspaceID string, since time.Time,
	number int) (map[uuid.UUID]time.Time, error) {
	reader, err := kgo.NewClient(kgo.SeedBrokers(h.broker), kgo.ConsumeTopics(kafka.CallEvents.Name),
		kgo.ConsumeResetOffset(kgo.NewOffset().AfterMilli(since.Add(-time.Second).UnixMilli())))
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	put := map[uuid.UUID]time.Time{}
	for len(put) < number {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("read when events were put: %w", err)
		}
		for _, wire := range fetches.Records() {
			if rec, err := kafka.Read(wire); err == nil && rec.WorkspaceID == workspaceID {
				put[rec.EventID] = rec.Time
			}
		}
	}
	return put, nil
}
