// Package service owns a process's life: its parts start together, SIGTERM and Ctrl-C drain them,
// the first fault ends them all. It also owns the frame of every main.go and how a port is opened and left.
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

// drain is how long the parts get to end once the service is told to stop.
const drain = 20 * time.Second

// Part is one thing a service does until its context ends.
type Part struct {
	Name string
	Run  func(context.Context) error
}

// Run starts the parts and waits. It ends when ctx ends, on SIGTERM or SIGINT, or when a part fails; then the
// others are told to stop and get 20 s. A process that was told to stop, and did not fail, is Leaving for DRAIN_DELAY before that. Parts stop one after another in reverse order of the list: put what is fed
// (private port, relay) first and what feeds (consumers, HTTP) last. A part that returns nil early is simply done. A
// second signal kills the process.
func Run(ctx context.Context, parts ...Part) error { return run(ctx, drain, parts) }

// RunPatiently is Run for a service with long work: its parts get longer than usual to end. A second
// signal does not kill the process but closes Hurried, upon which the parts must end their work at once.
// A third signal kills.
func RunPatiently(ctx context.Context, longer time.Duration, parts ...Part) error {
	ctx, stop := withHurry(ctx)
	defer stop()
	return run(ctx, drain+longer, parts)
}

// running is one started part: its own stop, its end and its error.
type running struct {
	Part
	stop context.CancelFunc
	done chan struct{}
	err  error
}

func run(ctx context.Context, budget time.Duration, parts []Part) error {
	ctx, unhook := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer unhook()
	defer context.AfterFunc(ctx, unhook)()
	told, leaving := withLeaving(ctx)

	started := make([]*running, len(parts))
	failed := make(chan struct{})
	var once sync.Once
	var all sync.WaitGroup
	for i, part := range parts {
		own, stop := context.WithCancel(context.WithoutCancel(told))
		p := &running{Part: part, stop: stop, done: make(chan struct{})}
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
		leaving.linger(Hurried(ctx), failed, finished)
	case <-failed:
	case <-finished:
	}
	return stopAll(started, finished, budget)
}

// stopAll ends the parts from the last to the first. When all but a tenth of the usual budget is gone, the rest are told all at
// once; who has not ended when it is spent is named and left behind.
func stopAll(started []*running, finished <-chan struct{}, budget time.Duration) error {
	orderly := time.NewTimer(budget - min(budget/10, drain/10))
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
