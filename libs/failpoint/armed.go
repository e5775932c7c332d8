//go:build crashpoints

package failpoint

import (
	"os"
	"syscall"
)

// Inject kills the process with SIGKILL if the file CRASH_FILE contains the name. Inject removes
// the file first, so that one file kills one process.
func Inject(name string) {
	path := os.Getenv("CRASH_FILE")
	armed, err := os.ReadFile(path)
	if err != nil || string(armed) != name || os.Remove(path) != nil {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // block until the signal arrives
}
