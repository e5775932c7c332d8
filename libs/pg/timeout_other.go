//go:build !linux

package pg

import "syscall"

// setUnackedTimeout does nothing, because only Linux has TCP_USER_TIMEOUT.
func setUnackedTimeout(_, _ string, _ syscall.RawConn) error { return nil }
