//go:build crashpoints

package failpoint

import (
	"os"
	"syscall"
)

// Inject kills the process with SIGKILL when the file CRASH_FILE holds its name. The file is
// removed first and only who removes it dies, so one arming is one death.
func Inject(name string) {
	path := os.Getenv("CRASH_FILE")
	armed, err := os.ReadFile(path)
	if err != nil || string(armed) != name || os.Remove(path) != nil {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // SIGKILL needs an instant to arrive; nothing more may happen
}
