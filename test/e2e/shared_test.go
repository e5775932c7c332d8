package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

// testStack is the stack that the tests of this package share: two replicas of each service, built
// with failpoints. The leases last a few seconds, so that another process soon takes over the work
// of a killed process.
type testStack struct {
	*sharedstack.TestStack
	// failpointBin is the folder of the services that are built with failpoints. Bin contains links to
	// these services.
	failpointBin string
	// failpointFile is a file with the name of a failpoint. The next process that reaches this
	// failpoint dies.
	failpointFile string
	points        []string
	traces        *kit.Traces
}

var shared = &sharedstack.Shared[*testStack]{Begin: begin}

func TestMain(m *testing.M) { os.Exit(shared.Main(m, 1)) }

func stack(t *testing.T) *testStack {
	t.Helper()
	return shared.Get(t)
}

func begin() (*testStack, error) {
	base, err := sharedstack.New()
	if err != nil {
		return nil, err
	}
	w := &testStack{TestStack: base, traces: kit.NewTraces()}
	w.AtEnd(func() error { w.traces.Close(); return nil })
	plain := w.Bin
	w.failpointBin, w.failpointFile = filepath.Join(w.Home, "armed"), filepath.Join(w.Home, "crash")
	w.Bin = filepath.Join(w.Home, "bin")
	if err := errors.Join(os.Mkdir(w.failpointBin, 0o755), os.Mkdir(w.Bin, 0o755)); err != nil {
		return w, err
	}
	if w.points, err = buildArmed(w.failpointBin); err != nil {
		return w, err
	}
	if err := errors.Join(sharedstack.Complete(w.failpointBin, plain), linkAll(w.Bin, w.failpointBin)); err != nil {
		return w, err
	}
	return w, w.Start("RINGFENCE_REPLICAS=2", "CRASH_FILE="+w.failpointFile, "OTEL_EXPORTER_OTLP_ENDPOINT="+w.traces.URL,
		"RINGFENCE_RESTART_PAUSE=500ms", "OUTBOX_LEASE=1s", "INSTANCE_LEASE=2s", "WEBHOOK_LEASE=3s", "WEBHOOK_TIMEOUT=2s",
		"CLAIM_LEASE=3s", "IDEMPOTENCY_LEASE=2s", "UNCONFIRMED_AFTER=2s", "REPUBLISH_AFTER=5s")
}

func buildArmed(dir string) (points []string, err error) {
	services, err := filepath.Glob("../../services/*")
	if err != nil {
		return nil, err
	}
	build := exec.Command("go", "build", "-tags", "crashpoints", "-ldflags=-s -w", "-o", dir+"/")
	for _, service := range services {
		build.Args = append(build.Args, service+"/cmd/"+filepath.Base(service))
		found, err := pointsIn(service)
		if err != nil {
			return nil, err
		}
		points = append(points, found...)
	}
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the services: %w\n%s", err, out)
	}
	found, err := pointsIn("../../libs")
	if points = append(points, found...); err == nil && len(points) < 10 {
		err = fmt.Errorf("only %d failpoints found: %v", len(points), points)
	}
	return points, err
}
