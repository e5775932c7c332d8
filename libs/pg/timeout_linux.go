package pg

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// setUnackedTimeout sets TCP_USER_TIMEOUT. It ends a connection to an unreachable server. A
// keepalive does not end a connection with unacknowledged data.
func setUnackedTimeout(_, _ string, conn syscall.RawConn) error {
	return conn.Control(func(fd uintptr) {
		// An error is ignored: without this option, the kernel only waits longer.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unackedTimeout.Milliseconds()))
	})
}
