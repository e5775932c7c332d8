package main

import (
	"context"
	"fmt"
	"time"

	"ringfence.dev/test/bench/internal/probe"
	"ringfence.dev/test/kit"
)

const (
	// neighbourRate is the number of deliveries per second to each endpoint.
	neighbourRate = 20.0
	// goalBeside limits the p99 of the healthy endpoint while other endpoints hang. It is a multiple
	// of the p99 of the healthy endpoint alone.
	goalBeside = 2.0
	// hangingClosed limits the time that requests to endpoints that hang can stay open. It is
	// longer than the timeout of an attempt.
	hangingClosed = 30 * time.Second
)

// Neighbours measures a healthy endpoint alone, together with one hanging endpoint, and together
// with ten. Each round creates new hanging endpoints, of which the dispatcher has no history.
func Neighbours(ctx context.Context, h *WebhookStack) error {
	healthy, err := h.subscribe(ctx, Take, h.lane(), 0)
	if err != nil {
		return err
	}
	// The first deliveries open the connections and do not count.
	if _, err := h.deliver(ctx, time.Second, neighbourRate, healthy); err != nil {
		return err
	}
	var alone []time.Duration
	beside := map[int]time.Duration{}
	// the first and the last round measure the endpoint alone, and both count
	for _, hanging := range []int{0, 1, 10, 0} {
		got, tried, err := h.measureNeighbours(ctx, healthy, hanging)
		if err != nil {
			return err
		}
		if len(got.took) == 0 {
			return errNothing
		}
		text := ""
		if hanging == 0 {
			alone = append(alone, got.took...)
		} else {
			beside[hanging] = probe.Quantile(got.took, 0.99)
			text = fmt.Sprintf("; the others were sent %d requests", tried)
		}
		fmt.Printf("  beside %2d that hang   %s; %d arrived, %d missing, %d twice%s\n", hanging, probe.Spread(got.took), got.arrived, got.missing, got.twice, text)
	}
	p99 := probe.Quantile(alone, 0.99)
	for _, hanging := range []int{1, 10} {
		times := float64(beside[hanging]) / float64(p99)
		fmt.Printf("  p99 beside %2d, of %.2f ms alone   %.1f x   %s\n", hanging, probe.MS(p99), times, probe.AtMost(times, goalBeside, "x"))
	}
	return healthy.drop(ctx)
}

// measureNeighbours runs one round. hangingRequests is the number of requests that the dispatcher
// sent to the endpoints that hang.
func (h *WebhookStack) measureNeighbours(ctx context.Context, healthy *endpoint, hanging int) (got countedRecords,
	hangingRequests int, err error) {
	lane := h.lane()
	others := make([]*endpoint, hanging)
	sources := []*source{healthy.source}
	for n := range others {
		if others[n], err = h.subscribe(ctx, Hang, lane, n+1); err != nil {
			return got, 0, err
		}
		sources = append(sources, others[n].source)
	}
	for _, from := range sources {
		from.sent = newPublished()
	}
	if err := h.publishEvenly(ctx, 3*h.Each, neighbourRate, sources...); err != nil {
		return got, 0, err
	}
	if got, err = h.arrived(ctx, healthy); err != nil {
		return got, 0, err
	}
	for _, e := range others {
		if err := e.drop(ctx); err != nil {
			return got, 0, err
		}
	}
	err = kit.Until(ctx, hangingClosed, "no request to an endpoint that hangs is open", func() (bool, error) {
		count, err := h.receiver.Count(ctx, lane)
		hangingRequests = count.Arrived
		return count.Open == 0, err
	})
	return got, hangingRequests, err
}
