//go:build !linux

package stack

import "syscall"

// attributes sets no death signal, because only Linux has death signals. On other systems the next
// start ends orphaned processes.
func attributes(spec Spec) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: spec.Credential}
}

// onMainThread returns false. The thread that starts a child matters only on Linux, where the
// kernel sends a death signal when that thread ends.
func onMainThread() bool { return false }
