package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/test/bench/internal/probe"
)

// The first three goals are ratios to the baseline loop of the same run. The baseline loop sends
// the same webhooks to the same receiver without the product.
const (
	goalDeliveryShare, stretchShare = 12.0, 15.0 // percent
	goalLoops                       = 15.0
	manySubscriptions               = 50
	// webhooksStuck limits the time without an arriving webhook. After this time, the missing webhooks
	// count as lost. It is longer than the lease of a claimed delivery.
	webhooksStuck = 30 * time.Second
)

// Deliveries delivers one backlog in call-events.v1 to one subscription, and then another backlog
// to fifty subscriptions.
func Deliveries(ctx context.Context, h *WebhookStack) error {
	if err := h.backlogOf(ctx, 1); err != nil {
		return err
	}
	return h.backlogOf(ctx, manySubscriptions)
}

type backlogResult struct {
	countedRecords
	made int
	used used
}

func (h *WebhookStack) backlogOf(ctx context.Context, subscriptions int) error {
	lane := h.lane()
	var endpoints []*endpoint
	for n := range subscriptions {
		e, err := h.subscribe(ctx, Take, lane, n)
		if err != nil {
			return err
		}
		endpoints = append(endpoints, e)
	}
	before, err := h.bareLoop(ctx, h.Each/2)
	if err != nil {
		return err
	}
	got, err := h.deliverBacklog(ctx, endpoints)
	if err != nil {
		return err
	}
	after, err := h.bareLoop(ctx, h.Each/2)
	if err != nil {
		return err
	}
	for _, e := range endpoints {
		if err := e.drop(ctx); err != nil {
			return err
		}
	}
	loop := probe.Mean(before, after)
	share, loops := 100*got.perSecond()/loop.PerSecond,
		got.used.perDelivery(got.arrived)/(float64(loop.CPU)/float64(time.Millisecond))
	judge := func(text string) string { return "   " + text }
	if subscriptions > 1 {
		judge = func(string) string { return "   (no goal)" }
	} else {
		h.backlogRate = got.perSecond()
	}
	fmt.Printf("  %d records of %d bytes and less waited, %d subscription(s)\n", got.made, len(h.completedBody()),
		subscriptions)
	fmt.Printf("    baseline loop        %8.0f /s   before %.0f, after %.0f; the sender's CPU %.4f ms a POST, the "+
		"receiver's %.4f\n",
		loop.PerSecond, before.PerSecond, after.PerSecond, float64(loop.CPU)/1e6, float64(loop.Caught)/1e6)
	fmt.Printf("    deliveries           %8.0f /s   first receipt to last; %d arrived, %d missing, %d twice\n", got.perSecond(), got.arrived, got.missing, got.twice)
	fmt.Printf("    share of the loop    %8.1f %%%s\n", share, judge(probe.AtLeast(share, goalDeliveryShare, " %")+", stretch "+probe.AtLeast(share, stretchShare, " %")))
	fmt.Printf("    CPU a delivery       %8.3f ms   %s\n", got.used.perDelivery(got.arrived), got.used.lines(got.arrived))
	fmt.Printf("    of the loop's CPU    %8.1f x%s\n", loops,
		judge(got.used.verdictOrReason(probe.AtMost(loops, goalLoops, "x"))))
	return nil
}

// sender returns a sender that sends the same requests as the dispatcher to one lane. A lane is a
// path of the receiver with its own counters.
func (h *WebhookStack) sender(lane string) (*probe.Sender, error) {
	return probe.NewPosting(h.CAFile, h.receiver.URLs[0]+"/"+Take+"/"+lane, h.completedBody())
}

func (h *WebhookStack) bareLoop(ctx context.Context, long time.Duration) (probe.Looped, error) {
	s, err := h.sender(h.lane())
	if err != nil {
		return probe.Looped{}, err
	}
	return s.Loop(ctx, long, h.receiver.PID)
}

// deliverBacklog stops the dispatcher, publishes the backlog, starts a new dispatcher and waits for
// the last delivery.
func (h *WebhookStack) deliverBacklog(ctx context.Context, endpoints []*endpoint) (got backlogResult, err error) {
	records := make([]*kgo.Record, h.Records)
	for i := range records {
		records[i] = endpoints[i%len(endpoints)].source.next()
	}
	again, err := h.stopDispatcher()
	if err != nil {
		return got, err
	}
	sent := newPublished()
	for _, rec := range records {
		sent.send(ctx, h.bus, rec)
	}
	fault := sent.wait()
	m, unseen := h.watch(ctx, true)
	if err := errors.Join(fault, unseen, again()); err != nil {
		return got, fmt.Errorf("prepare the backlog: %w", err)
	}
	lane := endpoints[0].lane
	if err := h.awaitArrivals(ctx, lane, len(records), webhooksStuck); err != nil {
		return got, err
	}
	_ = h.awaitSettled(ctx, webhooksStuck) // deliveries that are open after this time count as missing
	if got.used, err = m.stop(ctx); err != nil {
		return got, err
	}
	arrivals, err := h.receiver.Arrivals(ctx, lane)
	if err != nil {
		return got, err
	}
	got.made, got.countedRecords = len(records), sent.count(arrivals, 1)
	return got, nil
}
