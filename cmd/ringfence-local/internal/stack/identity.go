package stack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Identity distinguishes a process from a later process with the same process id.
type Identity struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	// Started identifies the boot of the system and the start time of the process.
	Started string `json:"started"`
}

// Identify returns the identity of a process. ok is false if the process does not exist.
func Identify(name string, pid int) (id Identity, ok bool) {
	started := startedAt(pid)
	return Identity{Name: name, PID: pid, Started: started}, started != ""
}

// Alive reports whether the identified process is still running.
func (id Identity) Alive() bool {
	now, ok := Identify(id.Name, id.PID)
	return ok && id.PID > 1 && now.Started == id.Started
}

// startedAt returns "" if the process does not exist or is a zombie.
func startedAt(pid int) string {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err == nil {
		// The name in parentheses can contain spaces, so fields are counted after the last
		// parenthesis. State is field 3, the start time field 22.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
			return ""
		}
		boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
		return strings.TrimSpace(string(boot)) + "/" + fields[19]
	}
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		return ""
	}
	out, err := exec.Command("ps", "-o", "lstart=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// Orphans returns the processes of a killed run that are still running. The file recordPath lists
// the processes of that run. If the file is damaged or missing, Orphans returns none.
func Orphans(recordPath string) []Identity {
	data, err := os.ReadFile(recordPath)
	if err != nil {
		return nil
	}
	var all, alive []Identity
	if json.Unmarshal(data, &all) != nil {
		return nil
	}
	for _, id := range all {
		if id.Alive() {
			alive = append(alive, id)
		}
	}
	return alive
}

// End sends a signal to a process. If the process has not ended after the duration killAfter, End
// kills the process and its process group.
func End(id Identity, signal syscall.Signal, killAfter time.Duration) error {
	if err := syscall.Kill(id.PID, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop orphaned %s (pid %d): %w", id.Name, id.PID, err)
	}
	for deadline := time.Now().Add(killAfter); id.Alive(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			killGroup(id.PID)
			_ = syscall.Kill(id.PID, syscall.SIGKILL)
			deadline = time.Now().Add(killAfter)
		}
	}
	return nil
}

func writeRecord(path string, live []Identity) error {
	data, err := json.MarshalIndent(live, "", "  ")
	if err != nil {
		return fmt.Errorf("render record of children: %w", err)
	}
	if len(live) == 0 {
		err := os.Remove(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return WriteFile(path, data, 0o600)
}

// Named reports whether the process has one of the names.
func Named(pid int, names ...string) bool {
	comm, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	if err != nil {
		comm, err = exec.Command("ps", "-o", "comm=", "-p", strconv.Itoa(pid)).Output()
	}
	if err != nil {
		return false
	}
	return slices.Contains(names, filepath.Base(strings.TrimSpace(string(comm))))
}
