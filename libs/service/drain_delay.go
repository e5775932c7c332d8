package service

import (
	"context"
	"time"
)

// processConfig contains the settings that package service itself reads.
type processConfig struct {
	// DrainDelay must be longer than the time for which services keep unused connections to each
	// other (serviceauth.IdleFor).
	DrainDelay time.Duration `env:"DRAIN_DELAY" envDefault:"0s" help:"How long a service accepts requests after SIGTERM while /readyz already fails. Set it to the time in which load balancers stop sending requests, and to more than 2s. If it is too short, clients get connection errors during a restart. 0 means no delay."`
}

type (
	delayKey   struct{}
	leavingKey struct{}
)

type stopState struct {
	delay time.Duration
	begun chan struct{}
}

func withLeaving(ctx context.Context) (context.Context, stopState) {
	delay, _ := ctx.Value(delayKey{}).(time.Duration)
	l := stopState{delay: delay, begun: make(chan struct{})}
	return context.WithValue(ctx, leavingKey{}, l.begun), l
}

// waitForDelay closes the channel that Leaving returns, and then waits for the delay. The wait ends
// earlier if one of the three channels in the parameters is closed.
func (l stopState) waitForDelay(hurried, failed, finished <-chan struct{}) {
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
// of the service can then redirect new work to other replicas. If ctx does not belong to a part,
// Leaving returns nil: a channel that is never closed.
func Leaving(ctx context.Context) <-chan struct{} {
	begun, _ := ctx.Value(leavingKey{}).(chan struct{})
	return begun
}

// IsLeaving reports whether the process has received the signal to stop: whether the channel of
// Leaving is closed.
func IsLeaving(ctx context.Context) bool {
	select {
	case <-Leaving(ctx):
		return true
	default:
		return false
	}
}
