package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"
)

func (r *rig) faulty(rule string) {
	r.t.Helper()
	var ordered map[string]any
	r.carrier(http.MethodPost, "/faults", rule, &ordered)
}

// deleteCarrierData deletes the files of the simulated carrier. Call it only while the carrier does
// not run.
func (r *rig) deleteCarrierData() {
	r.t.Helper()
	for _, variable := range r.simEnv {
		if dir, is := strings.CutPrefix(variable, "SIMCARRIER_DIR="); is {
			if err := os.RemoveAll(dir); err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

func (r *rig) awaitAllEnded(to string) {
	r.t.Helper()
	if facts := r.ends(r.request(to)); names(facts) != talked {
		r.t.Errorf("the next call: %s %v", names(facts), last(facts))
	}
	await(r.t, "every request and every call has ended", func() bool {
		var left int
		err := r.pool.QueryRow(r.t.Context(), `SELECT (SELECT count(*) FROM calls WHERE ended_at IS NULL)
			+ (SELECT count(*) FROM dial_queue WHERE state IN ('queued', 'dialing'))`).Scan(&left)
		return err == nil && left == 0
	})
}

type ended struct {
	status, code string
	dials        int
	charged      bool
}

func (r *rig) judge(what, to string, id uuid.UUID, want ended) {
	r.t.Helper()
	facts := r.ends(id)
	c := last(facts).GetCall()
	switch {
	case c.GetStatus() != want.status:
		r.t.Errorf("%s: c.GetStatus() = %v, want %v", what, c.GetStatus(), want.status)
	case c.GetErrorCode() != want.code:
		r.t.Errorf("%s: c.GetErrorCode() = %v, want %v", what, c.GetErrorCode(), want.code)
	case (c.GetBillableSeconds() > 0) != want.charged:
		r.t.Errorf("%s: (c.GetBillableSeconds() > 0) = %v, want %v",
			what, (c.GetBillableSeconds() > 0), want.charged)
	}
	if n := strings.Count(names(facts), "ended"); n != 1 {
		r.t.Errorf("%s: %d ends: %s", what, n, names(facts))
	}
	await(r.t, what+": the carrier's log counts its dials", func() bool { return len(r.log("originate", to)) >= want.dials })
	if n := len(r.log("originate", to)); n != want.dials {
		r.t.Errorf("%s: dialed %d times, want %d", what, n, want.dials)
	}
}

func TestCarrier_RequestIsDialedOnceIfTheCarrierIsFaulty(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0.05")
	r.dialer("RING_LIMIT=5s", "WATCHDOG_GRACE=1s", "CIRCUIT_FAILURES=1000")
	unknown := ended{"failed", "dial_state_unknown", 0, false}
	tests := []struct {
		fault, more, digits string
		want                ended
	}{
		{"refuse", "", "01", ended{"failed", "provider_unavailable", 0, false}},
		{"hang", "", "01", ended{"completed", "", 1, true}},
		{"hang", "", "99", ended{"failed", "agent_unavailable", 1, false}},
		{"hang_undialed", "", "01", unknown},
		{"late", `,"delay_ms":1000`, "01", ended{"completed", "", 1, true}},
		// The carrier responds only after the dialer's timeout. The dialer hangs up when it receives the
		// first event of the call.
		{"late", `,"delay_ms":7000`, "99", ended{"failed", "dial_state_unknown", 1, false}},
		{"dead", "", "01", ended{"no_answer", "", 1, false}},
		{"endless", "", "01", ended{"no_answer", "", 1, false}},
		{"answer_twice", "", "01", ended{"completed", "", 1, true}},
		{"repeat", "", "01", ended{"completed", "", 1, true}},
		{"disorder", "", "01", ended{"completed", "", 1, true}},
		{"disorder", "", "90", ended{"busy", "", 1, false}},
		// The end event arrives before the answer event. So the dialer queries the carrier for the time
		// of the answer.
		{"disorder", "", "95", ended{"completed", "", 1, true}},
		{"lose", "", "90", ended{"busy", "", 1, false}},
		{"lose", "", "01", ended{"completed", "", 1, true}},
		{"lose_end", "", "01", ended{"completed", "", 1, true}},
	}
	ids := make([]uuid.UUID, len(tests))
	to := func(i int) string { return fmt.Sprintf("+1415557%02d%s", i, tests[i].digits) }
	for i, tt := range tests {
		r.faulty(`{"fault":"` + tt.fault + `","to":"` + to(i) + `"` + tt.more + `}`)
		ids[i] = r.request(to(i), func(o *order) { o.maxCall = 3 })
	}
	for i, tt := range tests {
		r.judge(tt.fault+" "+tt.digits, to(i), ids[i], tt.want)
	}
	await(t, "the call that rang too late is hung up", func() bool { return len(r.log("hangup", to(5))) == 1 })
	r.awaitAllEnded("+14155990101")
}

func TestCarrier_LiveCallCheckEndsCallsWithoutAnEndEvent(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0.05")
	r.dialer("LOOK_EVERY=1s")
	tests := []struct {
		fault, to string
		want      ended
	}{
		{"lose_end", "+14155550801", ended{"completed", "", 1, true}},
		{"lose_end", "+14155550890", ended{"busy", "", 1, false}},
		{"lose", "+14155550802", ended{"completed", "", 1, true}},
	}
	for _, tt := range tests {
		r.faulty(`{"fault":"` + tt.fault + `","to":"` + tt.to + `"}`)
	}
	lives := r.request("+14155550898")
	for _, tt := range tests {
		r.judge(tt.fault+" of "+tt.to, tt.to, r.request(tt.to), tt.want)
	}
	r.judge("a call that went on", "+14155550898", lives, ended{"completed", "", 1, true})
	r.awaitAllEnded("+14155550803")
}

func TestCarrier_RequestIsDialedOnceIfTheCarrierCrashes(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0.05")
	r.dialer("CIRCUIT_REST=100ms")
	tests := []struct {
		fault, to string
		forgetful bool
		want      ended
	}{
		// The carrier's stored data shows that its crash ended the call.
		{"crash", "+14155550501", false, ended{"failed", "provider_unavailable", 1, false}},
		{"crash_undialed", "+14155550502", false, ended{"failed", "dial_state_unknown", 0, false}},
		// The carrier's data was deleted, so the carrier's log contains no dial.
		{"crash", "+14155550503", true, ended{"failed", "dial_state_unknown", 0, false}},
	}
	for _, tt := range tests {
		r.faulty(`{"fault":"` + tt.fault + `","to":"` + tt.to + `"}`)
		id := r.request(tt.to)
		<-r.sim.done
		if tt.forgetful {
			r.deleteCarrierData()
		}
		r.startCarrier()
		r.judge(tt.fault, tt.to, id, tt.want)
		r.awaitAllEnded(tt.to[:10] + "88")
	}
}

func TestCarrier_CallPlacedAfterTheTimeoutIsHungUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0.05")
	p := r.dialer("CIRCUIT_REST=100ms")
	r.ends(r.request("+14155550601"))
	resume := pause(t, r.sim)
	t.Cleanup(resume)
	const to = "+14155550699" // the simulated person with this number does not hang up
	id := r.request(to)
	await(
		t,
		"the dialer gives up the originate request",
		func() bool { return strings.Contains(p.output(), "result=unknown") },
	)
	resume()
	facts := r.ends(id)
	wantOneDial(t, r, to, facts)
	if c := last(facts).GetCall(); c.GetStatus() != "failed" {
		t.Errorf("ended as %v", c)
	}
	await(
		t,
		"every call that the carrier placed is hung up",
		func() bool { return len(r.log("hangup", to)) == len(r.log("originate", to)) },
	)
	r.awaitAllEnded("+14155550602")
}

// The carrier loses its data during a call. The call is not charged and not dialed again.
func TestCarrier_LostDataEndsTheCallWithoutASecondDial(t *testing.T) {
	t.Parallel()
	r := newRig(t, "4") // all durations are multiplied by 4, so a simulated person talks for at least 8 s
	p := r.dialer("CIRCUIT_REST=100ms")
	const lives, dies = "+14155550701", "+14155550702"
	id := r.request(lives, func(o *order) { o.maxCall = 2 })
	inProgress(t, r, id)
	forget := func() {
		r.sim.kill()
		r.deleteCarrierData()
		r.startCarrier()
	}
	forget()
	// The dialer hangs up at the call's maximum duration. The carrier no longer has the call.
	r.judge("a live dialer", lives, id, ended{"failed", "provider_unavailable", 0, false})

	id = r.request(dies)
	inProgress(t, r, id)
	p.kill()
	forget()
	r.dialer("CIRCUIT_REST=100ms")
	r.judge("a dialer that died", dies, id, ended{"failed", "dial_state_unknown", 0, false})
	r.awaitAllEnded("+14155550795")
}
