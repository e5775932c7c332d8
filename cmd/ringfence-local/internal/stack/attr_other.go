//go:build !linux

package stack

import "syscall"

// attributes: only Linux tells a child that its parent died; elsewhere the next start ends orphans.
func attributes(spec Spec) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: spec.Credential}
}

// onMainThread matters only where a thread's end is a signal.
func onMainThread() bool { return false }
