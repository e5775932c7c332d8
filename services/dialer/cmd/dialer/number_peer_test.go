package main

import (
	"strings"
	"testing"

	"ringfence.dev/services/dialer/internal/callstate"
)

func TestAgent_RequestWithoutCallerNumberIsBlocked(t *testing.T) {
	t.Parallel()
	const shown = "+14155550100"
	r := newRig(t, "0")
	port := startTrunk(t, strings.Replace(challengeScenario, `<recv request="INVITE"/>`,
		`<recv request="INVITE"><action><ereg regexp="sip:\+14155550100@" search_in="hdr" header="From:" `+
			`check_it="true" assign_to="from"/></action></recv><Reference variables="from"/>`, 1))
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t))
	path := r.addTrunk(p, port, `,"username":"account","password":"secret"`)
	r.withoutNumber()

	blocked := last(r.ends(r.request("+14155551321"))).GetBlocked()
	if got, want := blocked.GetErrorCode(), "invalid_agent"; got != want {
		t.Errorf("error code without a number = %q, want %q", got, want)
	}
	if got, want := blocked.GetErrorDetail(), "ringfence numbers add NUMBER AGENT"; !strings.Contains(got, want) {
		t.Errorf("error detail without a number = %q, want the command %q in it", got, want)
	}

	if status, body := r.asOperator("PATCH", path, `{"caller_ids":["`+shown+`"]}`); status != 200 {
		t.Fatalf("PATCH trunk = %d %v, want 200", status, body)
	}
	end := last(r.ends(r.request("+14155551322"))).GetCall()
	if got, want := end.GetHangupCause(), string(callstate.UserBusy); got != want {
		t.Errorf("hangup cause with caller_ids = %q, want %q", got, want)
	}
	if got := end.GetFrom(); got != shown {
		t.Errorf("from of the call = %q, want %q", got, shown)
	}
}
