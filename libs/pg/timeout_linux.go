package pg

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// endSilence breaks a connection whose other side is cut off: a keepalive does not, while a statement waits to be acknowledged.
func endSilence(_, _ string, conn syscall.RawConn) error {
	return conn.Control(func(fd uintptr) {
		// A kernel or socket that does not know it waits longer, and works.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds()))
	})
}
