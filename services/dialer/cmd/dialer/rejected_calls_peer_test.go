package main

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"ringfence.dev/libs/testkit/peertest"
)

func TestRejectedCalls_ListShowsTheSettingToChange(t *testing.T) {
	t.Parallel()
	peertest.Installed(t, "sipp")
	r, address := newRig(t, "0"), freeAddr(t)
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+address)
	list := func() []any {
		status, response := r.asOperator("GET", "http://"+p.addr+"/admin/v1/trunks/rejected-calls", "")
		if status != 200 {
			t.Fatalf("GET rejected calls = %d %v, want 200", status, response)
		}
		return response["data"].([]any)
	}
	check := func(one map[string]any, reason, hint string) {
		t.Helper()
		if got := one["reason"]; got != reason {
			t.Errorf("reason = %v, want %q", got, reason)
		}
		if got := one["hint"].(string); !strings.Contains(got, hint) {
			t.Errorf("hint = %q, want it to contain %q", got, hint)
		}
		if got, want := one["transport"], "UDP"; got != want {
			t.Errorf("transport = %v, want %q", got, want)
		}
		host, _, err := net.SplitHostPort(one["source"].(string))
		if err != nil {
			t.Errorf("source = %v: %v", one["source"], err)
		}
		if want := "127.0.0.66"; host != want {
			t.Errorf("source address = %q, want %q", host, want)
		}
		if got, want := one["to"].(string), "…0199"; !strings.HasPrefix(got, want) {
			t.Errorf("to = %q, want it to begin with %q", got, want)
		}
	}
	peertest.Start(t, t.TempDir(), "sipp", "-sn", "uac", "-i", "127.0.0.66", "-p", strconv.Itoa(peertest.Port(t)),
		"-mp", strconv.Itoa(peertest.Port(t)), "-s", "+14155550199", "-m", "1", "-nostdin", address)
	await(t, "the list contains the rejected call", func() bool { return len(list()) == 1 })
	check(list()[0].(map[string]any), "unknown_source", "add 127.0.0.66 to its inbound_sources")
	r.addTrunk(p, peertest.Port(t), `,"inbound_sources":["127.0.0.66"]`)
	await(t, "the INVITE that is sent again is refused for its number", func() bool {
		return list()[0].(map[string]any)["reason"] == "unassigned_number"
	})
	check(list()[0].(map[string]any), "unassigned_number", "ringfence numbers add")
}
