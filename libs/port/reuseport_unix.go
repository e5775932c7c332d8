//go:build linux || darwin

package port

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

func controlReusePort(_, _ string, conn syscall.RawConn) error {
	var fault error
	if err := conn.Control(func(fd uintptr) {
		fault = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}); err != nil {
		return fmt.Errorf("reach the socket: %w", err)
	}
	if fault != nil {
		return fmt.Errorf("set SO_REUSEPORT: %w", fault)
	}
	return nil
}
