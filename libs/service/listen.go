package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Listen listens on the TCP address addr. variable is the name of the environment variable that
// contains the address. If the address is in use, the error contains the name of the variable.
func Listen(ctx context.Context, addr, variable string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		_, port, _ := net.SplitHostPort(addr)
		return nil, fmt.Errorf("port %s (%s=%s) is taken by another process: stop it or set %s to a free address",
			port, variable, addr, variable)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s=%q: %w", variable, addr, err)
	}
	return listener, nil
}
