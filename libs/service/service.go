// Package service runs the process of a service. The process consists of parts, such as the HTTP
// server and the Kafka consumer. SIGTERM and Ctrl-C stop the parts in order, and an error of one
// part stops all parts. The package also contains the main function, the health check and the
// listener.
package service

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopTimeout is how long the parts can take to stop.
const stopTimeout = 20 * time.Second

// Part is a component of a service that runs until its context is canceled.
type Part struct {
	Name string
	Run  func(context.Context) error
}

// Run starts the parts and waits until they have stopped. SIGTERM, SIGINT, the end of ctx or an
// error of a part stops them. If a part returns nil, the other parts continue.
//
// If no part has failed, Run first closes the channel that Leaving returns, and waits for
// DRAIN_DELAY. The parts then stop in reverse order, within 20 s in total. A second signal kills
// the process.
func Run(ctx context.Context, parts ...Part) error { return run(ctx, stopTimeout, parts) }

// RunPatiently does what Run does, for a service with long work. The parts have extraTime in
// addition to the 20 s. A second signal does not kill the process. It closes the channel that
// Hurried returns, so that the parts end their work. A third signal kills the process.
func RunPatiently(ctx context.Context, extraTime time.Duration, parts ...Part) error {
	ctx, stop := withSecondSignal(ctx)
	defer stop()
	return run(ctx, stopTimeout+extraTime, parts)
}

type runningPart struct {
	Part
	stop context.CancelFunc
	done chan struct{}
	err  error
}

func run(ctx context.Context, budget time.Duration, parts []Part) error {
	ctx, unhook := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer unhook()
	defer context.AfterFunc(ctx, unhook)()
	partCtx, leaving := withLeaving(ctx)

	started := make([]*runningPart, len(parts))
	failed := make(chan struct{})
	var once sync.Once
	var all sync.WaitGroup
	for i, part := range parts {
		own, stop := context.WithCancel(context.WithoutCancel(partCtx))
		p := &runningPart{Part: part, stop: stop, done: make(chan struct{})}
		started[i] = p
		all.Go(func() {
			defer close(p.done)
			if err := p.Run(own); err != nil && (own.Err() == nil || !errors.Is(err, context.Canceled)) {
				p.err = fmt.Errorf("%s: %w", p.Name, err)
				once.Do(func() { close(failed) })
			}
		})
	}
	finished := make(chan struct{})
	go func() { all.Wait(); close(finished) }()

	select {
	case <-ctx.Done():
		leaving.waitForDelay(Hurried(ctx), failed, finished)
	case <-failed:
	case <-finished:
	}
	return stopAll(started, finished, budget)
}

// stopAll stops the parts from the last to the first. Shortly before the time budget ends, it
// cancels all remaining parts. If a part has not returned when the budget ends, the error contains
// the name of the part.
func stopAll(started []*runningPart, finished <-chan struct{}, budget time.Duration) error {
	orderly := time.NewTimer(budget - min(budget/10, stopTimeout/10))
	defer orderly.Stop()
	last := time.NewTimer(budget)
	defer last.Stop()
	hurry := false
	for i := len(started) - 1; i >= 0; i-- {
		started[i].stop()
		if hurry {
			continue
		}
		select {
		case <-started[i].done:
		case <-orderly.C:
			hurry = true
		}
	}
	select {
	case <-finished:
	case <-last.C:
	}
	var faults []error
	var stuck []string
	for _, p := range started {
		select {
		case <-p.done:
			faults = append(faults, p.err)
		default:
			stuck = append(stuck, p.Name)
		}
	}
	if len(stuck) > 0 {
		faults = append(faults, fmt.Errorf("did not stop within %s: %s", budget, strings.Join(stuck, ", ")))
	}
	return errors.Join(faults...)
}
