package process

import "syscall"

func attributes(spec Spec) *syscall.SysProcAttr {
	death := spec.DeathSignal
	if death == 0 {
		death = syscall.SIGKILL
	}
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: death, Credential: spec.Credential}
}
