//go:build !linux && !darwin

package port

import (
	"errors"
	"syscall"
)

func controlReusePort(_, _ string, _ syscall.RawConn) error {
	return errors.New("replicas cannot share a port on this system: set HTTP_REUSE_PORT=false")
}
