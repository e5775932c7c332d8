//go:build !linux

package stack

import "syscall"

// attributes sets no death signal, because only Linux has death signals. On other systems the next
// start ends orphaned processes.
func attributes(spec Spec) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: spec.Credential}
}

// onMainThread has no meaning without death signals.
func onMainThread() bool { return false }
