package service

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

type hurryKey struct{}

// withHurry closes Hurried of the returned context at the second SIGTERM or SIGINT. stop must be
// called when the service has ended.
func withHurry(ctx context.Context) (hurrying context.Context, stop func()) {
	signals, hurried, ended := make(chan os.Signal, 2), make(chan struct{}), make(chan struct{})
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		defer signal.Stop(signals)
		for range 2 {
			select {
			case <-signals:
			case <-ended:
				return
			}
		}
		close(hurried)
	}()
	return context.WithValue(ctx, hurryKey{}, hurried), func() { close(ended) }
}

// Hurried returns a channel that is closed when a process under RunPatiently receives a second
// signal. In any other context it returns nil, a channel that is never closed.
func Hurried(ctx context.Context) <-chan struct{} {
	hurried, _ := ctx.Value(hurryKey{}).(chan struct{})
	return hurried
}
