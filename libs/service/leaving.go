package service

import (
	"context"
	"time"
)

// frame is what every service reads besides its own settings.
type frame struct {
	// DrainDelay is longer than the services keep a connection to each other unused (trust.IdleFor).
	DrainDelay time.Duration `env:"DRAIN_DELAY" envDefault:"0s" help:"how long a service still accepts requests after SIGTERM while /readyz fails, as a duration; as long as load balancers need to stop sending requests to it"`
}

type (
	delayKey   struct{}
	leavingKey struct{}
)

// leaving is one process's way out.
type leaving struct {
	delay time.Duration
	begun chan struct{}
}

func withLeaving(ctx context.Context) (context.Context, leaving) {
	delay, _ := ctx.Value(delayKey{}).(time.Duration)
	l := leaving{delay: delay, begun: make(chan struct{})}
	return context.WithValue(ctx, leavingKey{}, l.begun), l
}

// linger closes Leaving and waits for the delay, or less if one of the channels is closed before.
func (l leaving) linger(hurried, failed, finished <-chan struct{}) {
	close(l.begun)
	over := time.NewTimer(l.delay)
	defer over.Stop()
	select {
	case <-over.C:
	case <-hurried:
	case <-failed:
	case <-finished:
	}
}

// Leaving is closed once the process that a part runs in was told to stop: what must not come to it any more is to be sent elsewhere. A context
// that is none of a part's is never Leaving.
func Leaving(ctx context.Context) <-chan struct{} {
	begun, _ := ctx.Value(leavingKey{}).(chan struct{})
	return begun
}

// IsLeaving says whether Leaving is closed.
func IsLeaving(ctx context.Context) bool {
	select {
	case <-Leaving(ctx):
		return true
	default:
		return false
	}
}
