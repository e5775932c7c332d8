package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Listen opens addr for TCP. variable names the setting the address came from, so that a port that is taken gives one line
// with the remedy. reusePort lets replicas on this machine share the address.
func Listen(ctx context.Context, addr, variable string, reusePort bool) (net.Listener, error) {
	var config net.ListenConfig
	if reusePort {
		config.Control = controlReusePort
	}
	listener, err := config.Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		_, port, _ := net.SplitHostPort(addr)
		return nil, fmt.Errorf("port %s (%s=%s) is taken by another process: stop it or set %s to a free address", port, variable, addr, variable)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s=%q: %w", variable, addr, err)
	}
	return listener, nil
}
