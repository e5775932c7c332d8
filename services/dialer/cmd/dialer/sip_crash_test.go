package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"ringfence.dev/services/dialer/internal/sdp"
	"ringfence.dev/services/dialer/internal/sip/siptest"
)

// The process that owns a call is killed directly before or directly after it applies an event of
// the call. A call whose state is unknown is not charged.
func TestSIP_CallEndsOnceIfItsOwnerCrashesAtAnEvent(t *testing.T) {
	t.Parallel()
	whole, arm := newRig(t, "0"), filepath.Join(t.TempDir(), "armed")
	env := []string{"CARRIER=sip", "SIP_UDP_ADDR=" + freeAddr(t), "CRASH_FILE=" + arm}
	p := whole.dialer(env...)
	type death struct{ stage, point string }
	var next atomic.Pointer[death]
	// enableFailpoint enables the failpoint when a call has the given status. If status is empty,
	// it does not wait.
	enableFailpoint := func(c *siptest.Call, stage, status string) {
		d := next.Load()
		if d.stage != stage {
			return
		}
		const count = "SELECT count(*) FROM calls WHERE to_e164 = $1 AND status = $2"
		await(t, "the call is "+status, func() bool {
			if status == "" {
				return true
			}
			var calls int
			err := whole.pool.QueryRow(t.Context(), count, c.Invite.Recipient.User, status).Scan(&calls)
			return err == nil && calls == 1
		})
		if err := os.WriteFile(arm, []byte(d.point), 0o600); err != nil {
			t.Error(err)
		}
	}
	dials := whole.trunkThat(p, "far", 1, func(c *siptest.Call) {
		session := sdp.NewSession(1, sdp.Local{Address: netip.MustParseAddr("127.0.0.1"), Port: 40000})
		answer, _, err := session.Answer(c.Invite.Body(), sdp.Both)
		if err != nil {
			t.Errorf("answer: %v", err)
			return
		}
		enableFailpoint(c, "ringing", "")
		c.Respond(180, "")
		if next.Load().stage == "ringing" {
			return
		}
		enableFailpoint(c, "answered", "ringing")
		c.Answer(string(answer))
		if next.Load().stage == "answered" {
			return
		}
		enableFailpoint(c, "ended", "in_progress")
		c.Request("BYE", "")
	})
	tests := []struct {
		death
		code string // error code of the call; empty if the call completed
	}{
		{death: death{stage: "ringing", point: "dialer: before events"}, code: "dial_state_unknown"},
		{death: death{stage: "ringing", point: "dialer: after events"}, code: "dial_state_unknown"},
		{death: death{stage: "answered", point: "dialer: before events"}, code: "dial_state_unknown"},
		{death: death{stage: "answered", point: "dialer: after events"}, code: "dial_state_unknown"},
		{death: death{stage: "ended", point: "dialer: before events"}, code: "dial_state_unknown"},
		{death: death{stage: "ended", point: "dialer: after events"}},
	}
	for i, tt := range tests {
		t.Run(strings.ReplaceAll(tt.stage+" "+tt.point, " ", "_"), func(t *testing.T) {
			r := whole.within(t)
			next.Store(&tt.death)
			number := fmt.Sprintf("+1415555135%d", i)
			id := r.request(number)
			<-p.done
			p = whole.dialer(env...)
			facts := r.ends(id)
			wantOneDial(t, r, number, facts)
			end := last(facts).GetCall()
			if got := end.GetErrorCode(); got != tt.code {
				t.Errorf("error code = %q, want %q; events %s", got, tt.code, names(facts))
			}
			if tt.code != "" && end.GetBillableSeconds() != 0 {
				t.Errorf("billable seconds = %d, want 0; events %s", end.GetBillableSeconds(), names(facts))
			}
			if got := dials(number); got != 1 {
				t.Errorf("dials = %d, want 1", got)
			}
		})
	}
}
