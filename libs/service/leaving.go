package service

import (
	"context"
	"time"
)

// frame has the settings of every service.
type frame struct {
	// DrainDelay must be longer than the services keep unused connections to each other
	// (serviceauth.IdleFor).
	DrainDelay time.Duration `env:"DRAIN_DELAY" envDefault:"0s" help:"how long a service accepts requests after SIGTERM while /readyz fails, as a duration: the time that load balancers need to stop sending requests; 0: no delay"`
}

type (
	delayKey   struct{}
	leavingKey struct{}
)

// leaving is the state of a process that stops.
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

// Leaving returns a channel that is closed when the process has received the signal to stop. A part
// can then redirect new work. In a context that is not of a part it returns nil, a channel that is
// never closed.
func Leaving(ctx context.Context) <-chan struct{} {
	begun, _ := ctx.Value(leavingKey{}).(chan struct{})
	return begun
}

// IsLeaving reports whether Leaving is closed.
func IsLeaving(ctx context.Context) bool {
	select {
	case <-Leaving(ctx):
		return true
	default:
		return false
	}
}
