//go:build !linux

package stack

import "syscall"

// The function attributes sets no death signal, the signal that Linux sends to a child when its
// parent dies. Other systems do not have it, so the next start ends the orphaned processes.
func attributes(spec Spec) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: spec.Credential}
}

// onMainThread returns false. The thread that starts a child matters only on Linux, where the
// kernel sends a death signal when that thread ends.
func onMainThread() bool { return false }
