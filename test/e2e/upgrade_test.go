package e2e

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

// servicesInOrder returns the services in the order of an upgrade. A service comes after the
// services that it calls.
func servicesInOrder() []string {
	return []string{"contacts-compliance", "billing-wallet", "dialer", "calls", "webhook-dispatcher", "gateway"}
}

// drainDelay is the value of DRAIN_DELAY in the Helm charts. It is longer than the time for which
// clients keep an idle connection (serviceauth.IdleFor between the services).
const (
	drainDelay   = "DRAIN_DELAY=5s"
	strictPerSec = 12
	replaced     = 40 * time.Second
	firstRolled  = 7_000_000
)

// TestUpgrade_NoRequestFails replaces the binary of every service, one replica after the other. No
// request may fail, and no event may be lost or sent twice. RINGFENCE_OLD_BIN names older binaries
// (make upgrade). Without this variable, the old binaries are copies of the new ones.
func TestUpgrade_NoRequestFails(t *testing.T) {
	whole := os.Getenv("RINGFENCE_OLD_BIN") != "" || sharedstack.Large()
	now := binaries(t)
	old := cmp.Or(os.Getenv("RINGFENCE_OLD_BIN"), copies(t, now))
	place := linked(t, now)
	for _, name := range servicesInOrder() {
		put(t, place, old, name)
	}
	hooks := receiver(t)
	s := start(t, place, "RINGFENCE_REPLICAS=2", "SSL_CERT_FILE="+hooks.CAFile, drainDelay, "WEBHOOK_LEASE=5s", "WEBHOOK_TIMEOUT=4s")
	w := tenant(t, s, hooks, "1000")
	customer := &strictClient{w: w, first: firstRolled}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); customer.run(ctx, strictPerSec) }()

	began := time.Now()
	if whole {
		for _, name := range servicesInOrder() {
			replaceReplicas(t, s, place, old, now, name)
		}
		for _, name := range servicesInOrder() {
			replaceReplicas(t, s, place, now, old, name)
		}
	} else {
		var all sync.WaitGroup
		for _, name := range servicesInOrder() {
			all.Go(func() { replaceReplicas(t, s, place, old, now, name) })
		}
		all.Wait()
	}
	t.Logf("rolled in %s, %d requests meanwhile", time.Since(began).Round(time.Second), customer.count())
	stop()
	<-done
	customer.check(t)
	judge(t, s, w, hooks, customer.accepted)
}

// replaceReplicas links a service to the binary in another folder. Then it replaces the service's
// replicas one after the other.
func replaceReplicas(t *testing.T, s *kit.Stack, place, from, to, name string) {
	put(t, place, to, name)
	pids := s.Processes()[name]
	for i, pid := range pids {
		began := time.Now()
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		err := kit.Until(t.Context(), replaced, name+" is replaced", func() (bool, error) {
			now := s.Processes()[name]
			return len(now) == len(pids) && !slices.Contains(now, pid) && ready(t, s, name), nil
		})
		if err != nil {
			t.Error(err)
			return
		}
		runs := map[string]int{}
		for _, now := range s.Processes()[name] {
			runs[binaryFolder(now, name, from, to)]++
		}
		t.Logf("%s: replica %d of %d replaced in %s", name, i+1, len(pids), time.Since(began).Round(100*time.Millisecond))
		want := map[string]int{from: len(pids) - i - 1, to: i + 1}
		if _, found := runs[""]; found && runtime.GOOS != "linux" {
			continue // only Linux shows the file that a process runs
		}
		if runs[from] != want[from] {
			t.Errorf("%s: runs[from] = %v, want %v", name, runs[from], want[from])
		} else if runs[to] != want[to] {
			t.Errorf("%s: runs[to] = %v, want %v", name, runs[to], want[to])
		}
	}
}

func ready(t *testing.T, s *kit.Stack, name string) bool {
	addresses, err := s.PrivateAddresses(name)
	if err != nil {
		t.Error(err)
		return false
	}
	for _, address := range addresses {
		answer, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return false
		}
	}
	return true
}

// binaryFolder returns the folder of the binary that a process runs. The result is "" if the binary
// is in none of the folders.
func binaryFolder(pid int, name string, folders ...string) string {
	running, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return ""
	}
	for _, dir := range folders {
		if file, err := os.Stat(filepath.Join(dir, name)); err == nil && os.SameFile(file, running) {
			return dir
		}
	}
	return ""
}

func linked(t *testing.T, bin string) string {
	t.Helper()
	place := readableFolder(t)
	if err := linkAll(place, bin); err != nil {
		t.Fatal(err)
	}
	return place
}

func linkAll(place, bin string) error {
	files, err := os.ReadDir(bin)
	if err != nil {
		return err
	}
	for _, file := range files {
		if file.IsDir() {
			continue
		}
		if err := linkProgram(place, bin, file.Name()); err != nil {
			return err
		}
	}
	return nil
}

// linkProgram replaces the program with the given name by a link to the program in another folder.
func linkProgram(place, from, name string) error {
	target, err := filepath.Abs(filepath.Join(from, name))
	if err != nil {
		return err
	}
	next := filepath.Join(place, "."+name)
	if err := os.Symlink(target, next); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(place, name))
}

func put(t *testing.T, place, from, name string) {
	t.Helper()
	if err := linkProgram(place, from, name); err != nil {
		t.Error(err)
	}
}

func copies(t *testing.T, bin string) string {
	t.Helper()
	if os.Getenv("RINGFENCE_OLD_BIN") != "" {
		return ""
	}
	dir := readableFolder(t)
	for _, name := range servicesInOrder() {
		if err := duplicate(filepath.Join(bin, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func duplicate(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return cmp.Or(err, out.Close())
}

// readableFolder returns a folder that an unprivileged process can read, unlike those of t.TempDir.
func readableFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ringfence-roll-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
