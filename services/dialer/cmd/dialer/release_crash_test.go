package main

import (
	"os"
	"path/filepath"
	"testing"

	"ringfence.dev/services/dialer/internal/sip/siptest"
)

// The dialer is killed after the trunk refused the call. The next process does not know the trunk's
// response, so it must not dial again.
func TestRelease_CrashBeforeTheRequeueCausesNoSecondDial(t *testing.T) {
	t.Parallel()
	r, arm := newRig(t, "0"), filepath.Join(t.TempDir(), "armed")
	env := []string{"CARRIER=sip", "SIP_UDP_ADDR=" + freeAddr(t), "CRASH_FILE=" + arm}
	p := r.dialer(env...)
	dials := r.trunkThat(p, "refuses", 1, func(c *siptest.Call) { c.Respond(100, ""); c.Respond(403, "") })
	if err := os.WriteFile(arm, []byte("dialer over sip: before release"), 0o600); err != nil {
		t.Fatal(err)
	}
	const number = "+14155551341"
	id := r.request(number)
	<-p.done
	r.dialer(env...)
	facts := r.ends(id)
	wantOneDial(t, r, number, facts)
	end := last(facts).GetCall()
	if end.GetErrorCode() != "dial_state_unknown" {
		t.Errorf("error code = %q, want dial_state_unknown; events %s", end.GetErrorCode(), names(facts))
	}
	if end.GetBillableSeconds() != 0 {
		t.Errorf("billable seconds = %d, want 0", end.GetBillableSeconds())
	}
	if got := dials(number); got != 1 {
		t.Errorf("dials = %d, want 1", got)
	}
}
