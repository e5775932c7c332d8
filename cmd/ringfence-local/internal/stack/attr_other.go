//go:build !linux

package stack

import "syscall"

// processAttributes sets no death signal. Only Linux sends a signal to a child when its parent
// dies. On other systems the next start ends the orphaned processes.
func processAttributes(spec Spec) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: spec.Credential}
}

// onMainThread returns false. The thread that starts a child matters only on Linux, where the
// kernel sends a death signal when that thread ends.
func onMainThread() bool { return false }
