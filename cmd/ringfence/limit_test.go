package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"ringfence.dev/libs/testkit"
)

func freePort(t *testing.T) int {
	t.Helper()
	free, err := testkit.Port()
	if err != nil {
		t.Fatal(err)
	}
	return free
}

func TestDemo_DeletesSubscriptionsOfKilledRuns(t *testing.T) {
	f := newFakeStack(t)
	f.fill(ownName+"demo", fmt.Sprintf("https://127.0.0.1:%d/webhooks", freePort(t)))

	code, out, faults := runCommand(t, "demo")

	if code != 0 {
		t.Errorf("exit status = %d, want 0; stderr: %s", code, faults)
	}
	if want := "signature verified"; !strings.Contains(out, want) {
		t.Errorf("output = %q, want it to contain %q", out, want)
	}
	if got := len(f.subs); got != 0 {
		t.Errorf("subscriptions after the demo = %d, want 0", got)
	}
}

// A subscription for the port of this run is from a killed run, because only one run can listen on
// a port.
func TestListen_DeletesSubscriptionsOfKilledRunsOnTheSamePort(t *testing.T) {
	f := newFakeStack(t)
	port := freePort(t)
	f.fill(ownName+"listen", fmt.Sprintf("https://127.0.0.1:%d/webhooks", port))

	out := listenUntil(t, `"hello"`, "--port", strconv.Itoa(port))

	if want := "signature verified"; !strings.Contains(out, want) {
		t.Errorf("output = %q, want it to contain %q", out, want)
	}
	if got := len(f.subs); got != 0 {
		t.Errorf("subscriptions after listen = %d, want 0", got)
	}
}

func TestDemo_ShowsTheCallWithoutWebhooksAtTheSubscriptionLimit(t *testing.T) {
	f := newFakeStack(t)
	f.fill("orders", "https://example.com/hooks")

	code, out, faults := runCommand(t, "demo")

	if code != 0 {
		t.Errorf("exit status = %d, want 0; stderr: %s", code, faults)
	}
	for _, want := range []string{
		"Five are active. Pause or delete one first.",
		"bin/ringfence webhooks remove old-0    # orders, https://example.com/hooks",
		"bin/ringfence webhooks remove old-4",
		"The call is shown without its webhooks.",
		"queued", "dialing", "interested", "0.0033 credits",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("output = %q, want it to contain %q", out, want)
		}
	}
	if got := len(f.subs); got != 5 {
		t.Errorf("subscriptions after the demo = %d, want 5", got)
	}
}

func TestListen_PrintsRemoveCommandsAtTheSubscriptionLimit(t *testing.T) {
	f := newFakeStack(t)
	f.fill("orders", "https://example.com/hooks")

	code, out, faults := runCommand(t, "listen")

	if code != 1 {
		t.Errorf("exit status = %d, want 1", code)
	}
	if want := "bin/ringfence webhooks remove old-0    # orders, https://example.com/hooks"; !strings.Contains(out, want) {
		t.Errorf("output = %q, want it to contain %q", out, want)
	}
	if want := "Five are active. Pause or delete one first."; !strings.Contains(faults, want) {
		t.Errorf("stderr = %q, want it to contain %q", faults, want)
	}
}
