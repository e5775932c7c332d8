package testkit

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Claim keeps a port from everybody else who claims, in any process, until this one ends, however it does. It says whether nobody had claimed it before, this
// process included. The claim is a socket with a name of the port's in the kernel's abstract namespace (unix(7)), which is never closed.
func Claim(port int) bool {
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	if err := unix.Bind(socket, &unix.SockaddrUnix{Name: fmt.Sprintf("@ringfence port %d", port)}); err != nil {
		_ = unix.Close(socket)
		return false
	}
	return true
}
