package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

func sippFarm(t *testing.T, script string) *kit.Sipp {
	t.Helper()
	if _, err := exec.LookPath(kit.Program); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("sipp is missing: install Debian's sip-tester")
		}
		t.Skip("sipp is missing: install Debian's sip-tester to run this")
	}
	f, err := kit.StartSipp(t.Context(), t.TempDir(), script)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.Stop()
		if t.Failed() {
			t.Logf("sipp said: %s", f.Errors())
		}
	})
	return f
}

// The trunks of the stack lead to the far ends, in order of priority.
func overSIP(t *testing.T, farms []*kit.Sipp, env ...string) (*kit.Stack, *kit.Workspace, *kit.Receiver) {
	t.Helper()
	hooks := receiver(t)
	s := start(t, binaries(t), append([]string{"SSL_CERT_FILE=" + hooks.CAFile, "CARRIER=sip", fmt.Sprintf("SIP_UDP_ADDR=127.0.0.1:%d", freePort(t)), "CIRCUIT_FAILURES=1000"}, env...)...)
	w := tenant(t, s, hooks, "100")
	for i, f := range farms {
		body := map[string]any{"name": fmt.Sprintf("farm %d", i), "host": "127.0.0.1", "port": f.Port, "priority": i + 1, "channels": 200, "calls_per_second": 200, "caller_ids": []string{"+14155550100"}}
		if err := w.Admin.Into(t.Context(), "POST", "/admin/v1/trunks", body, 201, nil); err != nil {
			t.Fatal(err)
		}
	}
	return s, w, hooks
}

// TestSIP_CallsCompleteFromPOSTToWebhook places calls over a SIP trunk to a sipp that sends the
// received audio back.
func TestSIP_CallsCompleteFromPOSTToWebhook(t *testing.T) {
	rings := kit.Respond("180 Ringing") + `<pause milliseconds="200"/>`
	rows := []struct {
		name, script  string
		endsAfter     int // milliseconds until the agent hangs up; with 0 the agent does not hang up
		status, cause string
		events        []string
	}{
		{"the agent hangs up", rings + kit.Answer() + kit.ExpectBye(), 1500, "completed", "normal_clearing", []string{"call.ringing", "call.answered", "call.completed"}},
		{"the person hangs up", rings + kit.Answer() + kit.HangUp(100, 1500), 0, "completed", "normal_clearing", []string{"call.ringing", "call.answered", "call.completed"}},
		{"the person is busy", rings + kit.Reject("486 Busy Here"), 0, "busy", "user_busy", []string{"call.ringing", "call.busy"}},
	}
	var branches []string
	for i, row := range rows {
		branches = append(branches, kit.When(2*i+1, "number", []int{i}, row.script))
	}
	far := sippFarm(t, kit.Script(`([0-9][0-9])`, []string{"number"}, append(branches, kit.Over())...))
	_, w, hooks := overSIP(t, []*kit.Sipp{far})
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			var agent struct{ ID string }
			settings := map[string]any{"name": "Ada", "script": map[string]any{"tone_hz": 440, "tone_millis": 500, "end_after_millis": row.endsAfter}}
			if err := w.Admin.Into(t.Context(), "POST", "/admin/v1/workspaces/"+w.ID+"/agents", settings, 201, &agent); err != nil {
				t.Fatal(err)
			}
			before := len(types(hooks, "/"+w.ID))
			req, err := w.Place(t.Context(), map[string]any{"to": number(100 + i), "agent_id": agent.ID})
			if err != nil {
				t.Fatal(err)
			}
			until(t, "the call's events", func() bool { return len(types(hooks, "/"+w.ID)) >= before+len(row.events) })
			if got := types(hooks, "/"+w.ID)[before:]; !slices.Equal(got, row.events) {
				t.Errorf("events = %v, want %v", got, row.events)
			}
			call := finishedCall(t, w, req.ID)
			sharedstack.Equal(t, "call.Status", call.Status, row.status)
			sharedstack.Equal(t, "stage.Value(call.HangupCause)", sharedstack.Value(call.HangupCause), row.cause)
			sharedstack.Equal(t, "charged", call.CreditsCharged != "", row.status == "completed")
			if talk := sharedstack.Value(call.Timings.TalkSeconds); row.status == "completed" && talk < 1 {
				t.Errorf("talk_seconds = %d, want at least 1", talk)
			}
		})
	}
	if differences, err := w.Differences(t.Context()); err != nil {
		t.Errorf("the books: Differences: %v", err)
	} else if len(differences) > 0 {
		t.Errorf("the books: differences = %v, want none", differences)
	}
}
