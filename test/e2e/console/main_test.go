// Package console tests the pages of the console in headless Chromium against a local stack.
package console

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

// site is the stack that all tests share.
type site struct {
	kit.Demo
	home, bin string
	own       *sharedstack.TestStack // nil for a stack that was already running
	provider  *provider              // nil for a stack that was already running
	// operator is the session cookie of the local operator, after the first sign-in.
	operator string
}

var shared = &sharedstack.Shared[*site]{Begin: begin}

func TestMain(m *testing.M) { os.Exit(shared.Main(m, 1)) }

func stack(t *testing.T) *site {
	t.Helper()
	browser(t) // without a browser, the test is skipped before it starts a stack
	return shared.Get(t)
}

// begin starts a stack. For quick trials, RINGFENCE_RUNNING names the folder of a running stack,
// which begin then uses.
func begin() (*site, error) {
	if home := os.Getenv("RINGFENCE_RUNNING"); home != "" {
		s := &site{home: home, bin: os.Getenv("RINGFENCE_BIN")}
		text, err := os.ReadFile(filepath.Join(home, "demo.json"))
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &s.Demo); err != nil {
			return s, err
		}
		return s, s.record()
	}
	base, err := sharedstack.New()
	if err != nil {
		return nil, err
	}
	s := &site{own: base, home: base.Home, bin: base.Bin}
	if s.provider, err = newProvider(); err != nil {
		return s, err
	}
	// With the time scale 0.25, a simulated phone that should ring for 20 s rings for 5 s. This time
	// is long enough for a test to hang up.
	if err := base.Start(append(s.provider.settings(), "SIMULATOR_TIME_SCALE=0.25")...); err != nil {
		return s, err
	}
	s.Demo = base.Demo
	return s, s.record()
}

// record enables transcripts and recordings for the demo workspace.
func (s *site) record() error {
	body := map[string]any{"features": map[string]bool{"transcripts": true, "recordings": true}}
	return kit.NewClient(
		s.AdminURL,
		s.AdminToken,
	).Into(
		context.Background(),
		"PATCH",
		"/admin/v1/workspaces/"+s.WorkspaceID,
		body,
		200,
		nil,
	)
}

// End stops the stack.
func (s *site) End(well bool) error {
	if s.own == nil {
		return nil
	}
	s.provider.server.Close()
	return s.own.End(well)
}

var (
	signInCode = regexp.MustCompile(`(?m)^[A-Z2-7]{4}-[A-Z2-7]{4}-[A-Z2-7]{4}$`)
	invitation = regexp.MustCompile(`(?m)^http://localhost:\d+(/invitations/rfi_[a-z2-7]{52})$`)
)

// code returns a new sign-in code. Earlier codes become invalid.
func (s *site) code(t *testing.T) string {
	t.Helper()
	return s.print(t, "sign-in-code", signInCode)[0]
}

// print runs a command of the gateway and returns what the pattern matches in its output.
func (s *site) print(t *testing.T, command string, pattern *regexp.Regexp) []string {
	t.Helper()
	program := exec.CommandContext(t.Context(), filepath.Join(s.bin, "ringfence-local"), "service", "gateway", command)
	program.Env = append(os.Environ(), "RINGFENCE_HOME="+s.home)
	printed, err := program.CombinedOutput()
	found := pattern.FindStringSubmatch(string(printed))
	if err != nil || found == nil {
		t.Fatalf("%s printed %q: %v", command, printed, err)
	}
	return found
}

// path replaces {workspace} by the id of the demo workspace.
func (s *site) path(format string) string {
	return regexp.MustCompile(`\{workspace\}`).ReplaceAllString(format, s.WorkspaceID)
}

// place places a call with the key of the demo workspace and returns the id of its request.
func (s *site) place(t *testing.T, to string) string {
	t.Helper()
	var request struct{ ID string }
	body := map[string]string{"agent_id": s.AgentID, "to": to}
	if err := kit.NewClient(
		s.BaseURL,
		s.WriteKey,
	).Into(
		t.Context(),
		"POST",
		"/v1/calls",
		body,
		202,
		&request,
	); err != nil {
		t.Fatal(err)
	}
	return request.ID
}

// awaitCall waits until the call of a request has ended and returns its id.
func (s *site) awaitCall(t *testing.T, request string) string {
	t.Helper()
	client := kit.NewClient(s.AdminURL, s.AdminToken) // the operator API has no rate limit
	var found struct {
		Status string
		CallID string `json:"call_id"`
	}
	err := kit.Until(t.Context(), callLimit, "the request has ended", func() (bool, error) {
		path := "/admin/v1/workspaces/" + s.WorkspaceID + "/call-requests/" + request
		err := client.Into(context.Background(), "GET", path, nil, 200, &found)
		return found.Status == "completed" || found.Status == "failed", err
	})
	if err != nil {
		t.Fatal(fmt.Errorf("request %s: %w", request, err))
	}
	return found.CallID
}
