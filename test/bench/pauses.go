package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"ringfence.dev/test/bench/internal/probe"
)

const (
	pauseRounds = 10
	// pausedFor is the time between the response to the pause and the resume. It is longer than
	// goalPaused.
	pausedFor = 2 * time.Second
	// goalPaused limits the time from the response to a pause to the start of the last attempt. It is
	// promised in docs/reference/api/webhooks.md.
	goalPaused = time.Second
	// goalResumed limits the time of the first delivery after a resume. It is a multiple of the p50
	// of a direct POST.
	goalResumed = 50.0
)

// Pauses measures the time from a change of a subscription's status to its effect under a steady
// load: to the last request after a pause, and to the first request after a resume.
func Pauses(ctx context.Context, h *WebhookStack) error {
	e, err := h.subscribe(ctx, Take, h.lane(), 0)
	if err != nil {
		return err
	}
	posts, err := h.directly(ctx, h.Each/2)
	if err != nil {
		return err
	}
	e.source.sent = newPublished()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	poured := make(chan error, 1)
	go func() { poured <- h.publishEvenly(ctx, pauseRounds*2*pausedFor, steadyRate, e.source) }()
	var paused, resumed []time.Time
	for range pauseRounds {
		if err := webhookPause(ctx, pausedFor/2); err != nil {
			return err
		}
		at, err := e.set(ctx, "paused")
		if err != nil {
			return err
		}
		paused = append(paused, at)
		if err := webhookPause(ctx, pausedFor); err != nil {
			return err
		}
		if at, err = e.set(ctx, "active"); err != nil {
			return err
		}
		resumed = append(resumed, at)
	}
	if err := <-poured; err != nil {
		return err
	}
	got, err := h.arrived(ctx, e)
	if err != nil {
		return err
	}
	arrivals, err := h.receiver.Arrivals(ctx, e.lane)
	if err != nil {
		return err
	}
	late, first := latestAndFirst(arrivals, paused, resumed)
	if len(first) == 0 {
		return errNothing
	}
	post := probe.Quantile(posts.answered, 0.5)
	times := float64(probe.Quantile(first, 0.5)) / float64(post)
	fmt.Printf("  direct POST over TLS           %s\n", probe.Spread(posts.answered))
	fmt.Printf("  last request after a pause     %.0f ms at most   %s\n",
		probe.MS(late), probe.AtMost(probe.MS(late), probe.MS(goalPaused), " ms"))
	fmt.Printf("  first request after a resume   %s\n", probe.Spread(first))
	fmt.Printf("    of a POST's p50              %.1f x   %s\n", times, probe.AtMost(times, goalResumed, "x"))
	fmt.Printf("  %d arrived, %d twice (no delivery is created while the subscription is paused)\n",
		got.arrived, got.twice)
	return e.drop(ctx)
}

func (e *endpoint) set(ctx context.Context, status string) (time.Time, error) {
	path := "/v1/webhook-subscriptions/" + e.subscription
	err := e.workspace.API.Into(ctx, http.MethodPatch, path, map[string]any{"status": status}, http.StatusOK, nil)
	return time.Now(), err
}

// latestAndFirst returns two results. `latest` is the longest time from the response to a pause to
// the last request before the resume. `first` contains, for each resume, the time from the response
// to the first request.
func latestAndFirst(
	arrivals []Arrival, paused, resumed []time.Time,
) (latest time.Duration, first []time.Duration) {
	for n := range paused {
		var next time.Duration
		for _, a := range arrivals {
			at := time.Unix(0, a.At)
			if at.After(paused[n]) && at.Before(resumed[n]) {
				latest = max(latest, at.Sub(paused[n]))
			}
			if after := at.Sub(resumed[n]); after > 0 && (next == 0 || after < next) {
				next = after
			}
		}
		if next > 0 {
			first = append(first, next)
		}
	}
	return latest, first
}
