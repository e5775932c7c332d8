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

// Identity tells one process from a later one with the same number.
type Identity struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	// Started is the boot and the instant of the start, as the system tells it.
	Started string `json:"started"`
}

// Identify is the process's identity now; ok is false when there is no such process.
func Identify(name string, pid int) (id Identity, ok bool) {
	started := startedAt(pid)
	return Identity{Name: name, PID: pid, Started: started}, started != ""
}

// Alive says whether the very same process still runs.
func (id Identity) Alive() bool {
	now, ok := Identify(id.Name, id.PID)
	return ok && id.PID > 1 && now.Started == id.Started
}

// startedAt is empty when the process is gone or a zombie.
func startedAt(pid int) string {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err == nil {
		// The name in brackets may hold blanks: fields are counted after the last bracket (state is 3, starttime 22).
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

// Orphans reads the record a killed run left behind: those that still live. A damaged or missing record
// names none.
func Orphans(record string) []Identity {
	data, err := os.ReadFile(record)
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

// End asks the process to end and kills it and its group once patience is over.
func End(id Identity, ask syscall.Signal, patience time.Duration) error {
	if err := syscall.Kill(id.PID, ask); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop orphaned %s (pid %d): %w", id.Name, id.PID, err)
	}
	for deadline := time.Now().Add(patience); id.Alive(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			killGroup(id.PID)
			_ = syscall.Kill(id.PID, syscall.SIGKILL)
			deadline = time.Now().Add(patience)
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

// Named says whether the process bears one of the names, as far as the system tells.
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
