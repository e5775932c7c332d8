package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"ringfence.dev/deploy/e2e/rig"
	"ringfence.dev/deploy/e2e/stage"
)

// crashLanes are stacks side by side that share the crash points.
const crashLanes = 2

// TestCrashPoints_EveryStepSettles kills the real processes between any two steps of claim, hold,
// commit, cancel, fence, originate and settlement: at every crash.Point that the code names. Whatever was
// under way must settle by itself.
func TestCrashPoints_EveryStepSettles(t *testing.T) {
	bin, points := armedBinaries(t, binaries(t))
	for lane := range crashLanes {
		t.Run(fmt.Sprint("lane ", lane+1), func(t *testing.T) {
			hooks, arm := receiver(t), filepath.Join(t.TempDir(), "armed")
			s := start(t, bin, "CRASH_FILE="+arm, "SSL_CERT_FILE="+hooks.CAFile, "WEBHOOK_LEASE=3s", "WEBHOOK_TIMEOUT=2s", "CLAIM_LEASE=3s",
				"IDEMPOTENCY_LEASE=2s", "UNCONFIRMED_AFTER=2s", "REPUBLISH_AFTER=5s")
			for i := lane; i < len(points); i += crashLanes {
				t.Run(strings.ReplaceAll(points[i], " ", "_"), func(t *testing.T) { crashAt(t, s, hooks, arm, points[i], i) })
			}
		})
	}
}

func crashAt(t *testing.T, s *rig.Stack, hooks *rig.Receiver, arm, point string, i int) {
	t.Helper()
	w := tenant(t, s, hooks, "1000")
	inbound(t, w, number(4_900_000+i))
	step := scenario{t: t, s: s, w: w, arm: arm, first: 4_000_000 + 100*i}
	step.run(point)
	if _, err := os.Stat(arm); err == nil {
		_ = os.Remove(arm)
		t.Fatalf("nothing came by %q: the scenario does not reach it", point)
	}
	v, err := s.Judge(t.Context(), w, hooks, step.accepted, 1000, time.Minute)
	if err != nil || v.Err() != nil {
		t.Fatal(err, v, v.Err())
	}
}

var pointCall = regexp.MustCompile(`crash\.Point\("([^"]+)"\)`)

// armedBinaries builds every service with its crash points armed and lists the points.
func armedBinaries(t *testing.T, plain string) (bin string, points []string) {
	t.Helper()
	bin = t.TempDir()
	services, err := filepath.Glob("../../services/*")
	if err != nil || len(services) == 0 {
		t.Fatal("no services found", err)
	}
	build := exec.Command("go", "build", "-tags", "crashpoints", "-ldflags=-s -w", "-o", bin+"/") // nobody looks at their symbols
	for _, dir := range services {
		build.Args = append(build.Args, dir+"/cmd/"+filepath.Base(dir))
		points = append(points, pointsIn(t, dir)...)
	}
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the services: %v\n%s", err, out)
	}
	stage.Complete(t, bin, plain)
	points = append(points, pointsIn(t, "../../libs")...)
	if len(points) < 10 {
		t.Fatalf("only %d crash points found: %v", len(points), points)
	}
	return bin, points
}

func pointsIn(t *testing.T, dir string) (points []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		source := strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go")
		if err != nil || !source {
			return err
		}
		code, err := os.ReadFile(path)
		for _, match := range pointCall.FindAllStringSubmatch(string(code), -1) {
			// Those of real calls need trunks: services/dialer/cmd/dialer reaches them.
			if !slices.Contains(points, match[1]) && !strings.HasPrefix(match[1], "dialer over sip: ") {
				points = append(points, match[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return points
}

// inbound gives the workspace a number. The dialer may not know the agent yet: a replica that was just killed held its part of
// agents.v1.
func inbound(t *testing.T, w *rig.Workspace, to string) {
	t.Helper()
	until(t, time.Minute, "the dialer knows the agent", func() bool {
		body := map[string]any{"phone_e164": to, "agent_id": w.AgentID}
		status, answer, err := w.Admin.Do(t.Context(), "POST", "/admin/v1/workspaces/"+w.ID+"/numbers", body)
		if err != nil || status != 201 && !strings.Contains(string(answer), "invalid_agent") {
			t.Fatalf("add number: %d %s %v", status, answer, err)
		}
		return status == 201
	})
}

// scenario walks one workspace by every crash point: calls with keys, cancels early and racing, an
// abandoned POST, an opt-out heard in a call.
type scenario struct {
	t        *testing.T
	s        *rig.Stack
	w        *rig.Workspace
	arm      string
	first    int
	accepted map[string]string
}

func (sc *scenario) run(point string) {
	sc.t.Helper()
	sc.accepted = map[string]string{}
	posting := &load{w: sc.w, accepted: sc.accepted, answers: map[int]int{}}
	if settlesOrphan(point) { // these run only for a hold whose POST died
		sc.set("calls: after hold")
		status, _, err := sc.w.API.Do(sc.t.Context(), "POST", "/v1/calls", map[string]any{"agent_id": sc.w.AgentID, "to": number(sc.first + 50)})
		if err == nil && status == 202 {
			sc.t.Fatal("the POST survived the crash point after its hold")
		}
	}
	sc.set(point)
	for _, digits := range []int{1, 90, 96} {
		posting.place(sc.t.Context(), number(sc.first+digits))
	}
	for _, digits := range []int{2, 3} {
		sc.placeAndCancel(posting, number(sc.first+digits))
	}
	sc.testWebhooks()
	posting.check(sc.t)
	_ = rig.Until(sc.t.Context(), time.Minute, "the process dies at the point", func() (bool, error) {
		_, err := os.Stat(sc.arm)
		return os.IsNotExist(err), nil
	})
	if err := sc.s.AwaitReady(sc.t.Context(), time.Minute); err != nil {
		sc.t.Fatal(err)
	}
}

// testWebhooks has a test delivery queued for each subscription: unlike the deliveries of an idle stack's events it is claimed.
func (sc *scenario) testWebhooks() {
	sc.t.Helper()
	err := rig.Until(sc.t.Context(), time.Minute, "the subscriptions are tested", func() (bool, error) {
		var page struct {
			Data []struct {
				ID string `json:"id"`
			} `json:"data"`
		}
		if err := sc.w.API.Into(sc.t.Context(), "GET", "/v1/webhook-subscriptions", nil, 200, &page); err != nil {
			return false, nil //nolint:nilerr // it may have died
		}
		for _, sub := range page.Data {
			if status, _, err := sc.w.API.Do(sc.t.Context(), "POST", "/v1/webhook-subscriptions/"+sub.ID+"/test", nil); err != nil || status != 202 {
				return false, nil //nolint:nilerr // the same
			}
		}
		return len(page.Data) > 0, nil
	})
	if err != nil {
		sc.t.Fatal(err)
	}
}

func settlesOrphan(point string) bool {
	for _, word := range []string{"unconfirmed", "tombstone", "abandon"} {
		if strings.Contains(point, word) {
			return true
		}
	}
	return false
}

func (sc *scenario) set(point string) {
	sc.t.Helper()
	if err := os.WriteFile(sc.arm+".new", []byte(point), 0o600); err != nil {
		sc.t.Fatal(err)
	}
	if err := os.Rename(sc.arm+".new", sc.arm); err != nil {
		sc.t.Fatal(err)
	}
}

// placeAndCancel cancels a request in the instant after it was accepted and demands that the answer was
// the truth: 200 means canceled for good, 409 that it went on.
func (sc *scenario) placeAndCancel(posting *load, to string) {
	sc.t.Helper()
	posting.place(sc.t.Context(), to)
	id := posting.id(to)
	var status int
	err := rig.Until(sc.t.Context(), time.Minute, "cancel is answered", func() (bool, error) {
		var err error
		status, _, err = sc.w.API.Do(sc.t.Context(), "POST", "/v1/call-requests/"+id+"/cancel", nil)
		return err == nil && (status == 200 || status == 409), nil
	})
	if err != nil {
		sc.t.Error(err)
		return
	}
	var req rig.Request
	err = rig.Until(sc.t.Context(), time.Minute, "the canceled request ends", func() (bool, error) {
		var err error
		req, err = sc.w.Request(sc.t.Context(), id)
		return err == nil && req.Final(), nil
	})
	if err != nil || status == 200 && req.Status != "canceled" {
		sc.t.Errorf("cancel of %s answered %d, it ended %s (%v)", id, status, req.Status, err)
	}
}
