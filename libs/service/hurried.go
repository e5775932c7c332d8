package service

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

type hurryKey struct{}

// withSecondSignal adds a channel to the context. The second SIGTERM or SIGINT closes the channel.
// The caller must call stop when the service has ended.
func withSecondSignal(ctx context.Context) (hurrying context.Context, stop func()) {
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
// signal. In any other context it returns nil, and a nil channel is never closed.
func Hurried(ctx context.Context) <-chan struct{} {
	hurried, _ := ctx.Value(hurryKey{}).(chan struct{})
	return hurried
}
