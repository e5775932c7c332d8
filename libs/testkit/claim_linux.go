package testkit

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Claim reserves a port until this process ends. It returns false if the port is already reserved
// on this machine. The reservation is a socket with a name in the abstract namespace of the kernel
// (unix(7)).
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
