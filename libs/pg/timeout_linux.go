package pg

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// setUnackedTimeout sets a timeout that ends a connection whose other side is unreachable. A
// keepalive does not end the connection while sent data is unacknowledged.
func setUnackedTimeout(_, _ string, conn syscall.RawConn) error {
	return conn.Control(func(fd uintptr) {
		// The error is ignored: without the option the kernel only waits longer.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unackedTimeout.Milliseconds()))
	})
}
