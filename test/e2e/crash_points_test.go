package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

// TestFailpoints_WorkCompletesAfterEachKill kills a process at each failpoint. It includes the
// dialer's failpoints only with -large, because TestCrash_CrashAtAFailpointCausesNoSecondDial also
// covers them.
func TestFailpoints_WorkCompletesAfterEachKill(t *testing.T) {
	w := stack(t)
	for i, point := range w.points {
		if strings.HasPrefix(point, "dialer: ") && !sharedstack.Large() {
			continue
		}
		t.Run(strings.ReplaceAll(point, " ", "_"), func(t *testing.T) { crashAt(t, w, point, i) })
	}
}

func crashAt(t *testing.T, w *testStack, point string, i int) {
	t.Helper()
	// wait until every service is ready, because the previous subtest killed a process
	for _, name := range servicesInOrder() {
		until(t, name+" is ready", func() bool { return ready(t, w.Stack, name) })
	}
	tenant := tenant(t, w.Stack, w.Hooks, "1000")
	addInboundNumber(t, tenant, number(4_900_000+i))
	step := scenario{t: t, s: w.Stack, w: tenant, failpointFile: w.failpointFile, first: 4_000_000 + 100*i}
	step.run(point)
	if _, err := os.Stat(w.failpointFile); err == nil {
		_ = os.Remove(w.failpointFile)
		t.Fatalf("no process reached %q", point)
	}
	v, err := w.Judge(t.Context(), tenant, w.Hooks, step.accepted, 1000, kit.HangTimeout)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Err(); err != nil {
		t.Error(err)
	}
}

var pointCall = regexp.MustCompile(`failpoint\.Inject\("([^"]+)"\)`)

func pointsIn(dir string) (points []string, err error) {
	err = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		source := strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go")
		if err != nil || !source {
			return err
		}
		code, err := os.ReadFile(path)
		for _, match := range pointCall.FindAllStringSubmatch(string(code), -1) {
			// The failpoints of real calls need SIP trunks. Tests of services/dialer/cmd/dialer
			// reach these failpoints.
			if !slices.Contains(points, match[1]) && !strings.HasPrefix(match[1], "dialer over sip: ") {
				points = append(points, match[1])
			}
		}
		return err
	})
	return points, err
}

// addInboundNumber gives the workspace a number for inbound calls. A restarted dialer refuses the
// number with invalid_agent until it has received the agent from Kafka. Until then,
// addInboundNumber repeats the request.
func addInboundNumber(t *testing.T, w *kit.Workspace, to string) {
	t.Helper()
	until(t, "the dialer has received the agent", func() bool {
		body := map[string]any{"phone_e164": to, "agent_id": w.AgentID}
		status, answer, err := w.Admin.Do(t.Context(), "POST", "/admin/v1/workspaces/"+w.ID+"/numbers", body)
		if err != nil {
			t.Fatalf("add number: Do: %v", err)
		}
		if status != 201 && !strings.Contains(string(answer), "invalid_agent") {
			t.Fatalf(`add number: answer = %q, want it to contain "invalid_agent"`, string(answer))
		}
		return status == 201
	})
}

// scenario runs one workspace until a process dies at the failpoint.
type scenario struct {
	t             *testing.T
	s             *kit.Stack
	w             *kit.Workspace
	failpointFile string
	first         int
	accepted      map[string]string
}

func (sc *scenario) run(point string) {
	sc.t.Helper()
	sc.accepted = map[string]string{}
	posting := &load{w: sc.w, accepted: sc.accepted, answers: map[int]int{}}
	// The service `calls` is killed after it has stored the hold, so the hold has no call request.
	if needsOrphanHold(point) {
		sc.set("calls: after hold")
		status, _, err := sc.w.API.Do(sc.t.Context(), "POST", "/v1/calls", map[string]any{"agent_id": sc.w.AgentID, "to": number(sc.first + 50)})
		if err == nil && status == 202 {
			sc.t.Fatal("the process of the POST did not die at the failpoint after its hold")
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
	_ = kit.Until(sc.t.Context(), kit.HangTimeout, "the process dies at the point", func() (bool, error) {
		_, err := os.Stat(sc.failpointFile)
		return os.IsNotExist(err), nil
	})
	if err := sc.s.AwaitReady(sc.t.Context(), kit.HangTimeout); err != nil {
		sc.t.Fatal(err)
	}
}

// testWebhooks requests a test delivery for each subscription, so that the dispatcher has
// deliveries to claim.
func (sc *scenario) testWebhooks() {
	sc.t.Helper()
	err := kit.Until(sc.t.Context(), kit.HangTimeout, "the subscriptions are tested", func() (bool, error) {
		var page struct {
			Data []struct {
				ID string `json:"id"`
			} `json:"data"`
		}
		if err := sc.w.API.Into(sc.t.Context(), "GET", "/v1/webhook-subscriptions", nil, 200, &page); err != nil {
			return false, nil //nolint:nilerr // the process with the failpoint can have died
		}
		for _, sub := range page.Data {
			if status, _, err := sc.w.API.Do(sc.t.Context(), "POST", "/v1/webhook-subscriptions/"+sub.ID+"/test", nil); err != nil || status != 202 {
				return false, nil //nolint:nilerr // the process with the failpoint can have died
			}
		}
		return len(page.Data) > 0, nil
	})
	if err != nil {
		sc.t.Fatal(err)
	}
}

func needsOrphanHold(point string) bool {
	for _, word := range []string{"unconfirmed", "tombstone", "abandon"} {
		if strings.Contains(point, word) {
			return true
		}
	}
	return false
}

func (sc *scenario) set(point string) {
	sc.t.Helper()
	if err := os.WriteFile(sc.failpointFile+".new", []byte(point), 0o600); err != nil {
		sc.t.Fatal(err)
	}
	if err := os.Rename(sc.failpointFile+".new", sc.failpointFile); err != nil {
		sc.t.Fatal(err)
	}
}

// If the cancel has status 200, the call request must not be dialed. If the cancel has status 409,
// the call request must be dialed.
func (sc *scenario) placeAndCancel(posting *load, to string) {
	sc.t.Helper()
	posting.place(sc.t.Context(), to)
	id := posting.id(to)
	var status int
	err := kit.Until(sc.t.Context(), kit.HangTimeout, "cancel is answered", func() (bool, error) {
		var err error
		status, _, err = sc.w.API.Do(sc.t.Context(), "POST", "/v1/call-requests/"+id+"/cancel", nil)
		return err == nil && (status == 200 || status == 409), nil
	})
	if err != nil {
		sc.t.Error(err)
		return
	}
	var req kit.Request
	err = kit.Until(sc.t.Context(), kit.HangTimeout, "the canceled request ends", func() (bool, error) {
		var err error
		req, err = sc.w.Request(sc.t.Context(), id)
		return err == nil && req.Final(), nil
	})
	if err != nil {
		sc.t.Errorf("Until: %v", err)
	} else if status == 200 && req.Status != "canceled" {
		sc.t.Errorf(`req.Status = %q, want "canceled"; id = %s`, req.Status, id)
	}
}
