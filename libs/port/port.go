// Package port owns how a TCP port is opened, alone or shared by replicas, and how it is shut without failing a client. It does not know what
// is spoken there.
package port

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Open opens addr for TCP. variable names the setting the address came from, so that a port that is taken gives one line
// with the remedy. reusePort lets replicas on this machine share the address.
func Open(ctx context.Context, addr, variable string, reusePort bool) (*Door, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false) // Go's default where there is a kernel for it, whose sockets take no filter (Door.Shut)
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
	return &Door{TCPListener: listener.(*net.TCPListener)}, nil //nolint:forcetypeassert // tcp was asked for
}
