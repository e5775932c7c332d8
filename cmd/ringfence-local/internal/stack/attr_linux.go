package stack

import (
	"os"
	"syscall"
)

func processAttributes(spec Spec) *syscall.SysProcAttr {
	death := spec.DeathSignal
	if death == 0 {
		death = syscall.SIGKILL
	}
	// With its own process group, the child does not receive a Ctrl-C at the terminal.
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: death, Credential: spec.Credential}
}

func onMainThread() bool { return syscall.Gettid() == os.Getpid() }
