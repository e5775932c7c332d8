package failover

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// personOf returns the behavior of the person with a number. It depends on the last digit.
func personOf(number string) behavior {
	switch number[len(number)-1] {
	case '0':
		return behavior{rings: 200 * time.Millisecond, busy: true}
	case '1':
		return behavior{rings: 3 * time.Second, talks: 2 * time.Second}
	case '2', '3', '4', '5':
		return behavior{rings: 300 * time.Millisecond, talks: 2 * time.Second, patient: true}
	}
	return behavior{rings: 300 * time.Millisecond, talks: 2 * time.Second}
}

// addTrunk creates the trunk to the phones. The agent of the SIP calls talks until the person hangs
// up.
func (x *trial) addTrunk() {
	x.t.Helper()
	agent := map[string]any{"script": map[string]any{"tone_hz": 440, "tone_millis": 60_000}}
	path := "/admin/v1/workspaces/" + x.sip.ID + "/agents/" + x.sip.AgentID
	if err := x.sip.Admin.Into(x.t.Context(), http.MethodPatch, path, agent, http.StatusOK, nil); err != nil {
		x.t.Fatal(err)
	}
	trunk := map[string]any{
		"name": "phones", "host": "127.0.0.1", "port": x.phones.port(), "channels": 1000, "calls_per_second": 100,
		"caller_ids": []string{"+14155550100"},
	}
	path = "/admin/v1/trunks"
	if err := x.sip.Admin.Into(x.t.Context(), http.MethodPost, path, trunk, http.StatusCreated, nil); err != nil {
		x.t.Fatal(err)
	}
}

// dialersThatTalk returns the number of dialers that have a conversation over SIP.
func (x *trial) dialersThatTalk() int {
	talking := map[string]bool{}
	for _, c := range x.phones.received() {
		if !c.answered.IsZero() && c.over.IsZero() {
			talking[c.sentBy] = true
		}
	}
	return len(talking)
}

// sipResult contains the calls that the phones received, and what happened to the conversations
// during the failover.
type sipResult struct {
	// dialogs is the number of INVITEs with different Call-IDs. unreplicated is the number of those
	// after the last WAL that the standby received.
	dialogs, unreplicated int
	// twice contains the people who were dialed again after their phone had rung.
	twice []string
	// continued counts the conversations of the remaining dialer during the failover. uncharged counts
	// the completed calls that were not charged, because the new database has lost the call request
	// and its hold.
	continued, uncharged int
	// hungUp and left count the calls of the killed dialer during the failover that another process
	// hung up, and that the person hung up.
	hungUp, left int
	faults       []string
}

func (r sipResult) String() string {
	return fmt.Sprintf("dialogs %d, dialed without WAL %d, twice %d, conversations continued %d, uncharged %d, "+
		"calls of the killed dialer: hung up %d, left to the person %d, faults %d", r.dialogs, r.unreplicated,
		len(r.twice), r.continued, r.uncharged, r.hungUp, r.left, len(r.faults))
}

func (r sipResult) assert(t *testing.T) {
	t.Helper()
	if got := len(r.twice); got != 0 {
		t.Errorf("people called twice over SIP = %d (%v), want 0", got, r.twice)
	}
	if r.continued == 0 {
		t.Error("SIP conversations of the living dialer that continued = 0, want more")
	}
	if r.hungUp == 0 {
		t.Error("SIP calls of the killed dialer that another process hung up = 0, want more")
	}
	if diff := cmp.Diff([]string(nil), r.faults); diff != "" {
		t.Errorf("SIP calls with faults (-want +got):\n%s", diff)
	}
}

// countDials finds the people who were dialed again after their phone had rung. A retransmission of
// an INVITE is no second dial.
func (x *trial) countDials() (r sipResult) {
	rang := map[string]bool{}
	for _, c := range x.phones.received() {
		r.dialogs++
		if rang[c.number] || c.invites > 1 {
			r.twice = append(r.twice, c.number)
		}
		rang[c.number] = rang[c.number] || !c.rang.IsZero()
	}
	r.unreplicated = x.sipUnreplicated
	return r
}

// checkPhones waits until every phone has disconnected. Then it compares the calls that the phones
// had during the failover with the calls in the new database and in the API.
func (x *trial) checkPhones(db *server, killed time.Time) sipResult {
	x.t.Helper()
	x.until("every phone disconnects", func() (bool, error) {
		return !slices.ContainsFunc(x.phones.received(), func(c phoneCall) bool { return c.over.IsZero() }), nil
	})
	requests, err := x.sip.Requests(x.t.Context())
	if err != nil {
		x.t.Fatal(err)
	}
	requested := map[string]bool{}
	for _, req := range requests {
		requested[req.To] = true
	}
	r := x.countDials()
	ends := pairs(db, `SELECT call_id::text, status || ' ' || coalesce(hangup_cause, '') FROM dialer.calls
		WHERE ended_at IS NOT NULL`)
	for _, c := range x.phones.received() {
		if c.begun.After(killed) || c.over.Before(killed) {
			continue
		}
		fault := ""
		if c.sentBy == x.killedSIP {
			r.countOrphan(c)
		} else {
			fault = x.checkLiving(&r, c, ends[c.callID], killed)
		}
		switch {
		case fault != "":
		case requested[c.number]:
			fault = x.chargeFault(c, ends[c.callID], killed)
		default:
			fault = x.lostRequestFault(&r, c)
		}
		if fault != "" {
			r.faults = append(r.faults, fmt.Sprintf("call %s of %s: %s", c.callID, c.sentBy, fault))
		}
	}
	return r
}

// checkLiving checks that a call of the remaining dialer continued until the person hung up.
func (x *trial) checkLiving(r *sipResult, c phoneCall, end string, killed time.Time) (fault string) {
	if c.answered.IsZero() {
		return "" // the line was busy
	}
	if c.hungUp {
		return fmt.Sprintf("the dialer hung up %s after the kill, end %q", c.over.Sub(killed), end)
	}
	if end != "completed normal_clearing" {
		return fmt.Sprintf("the end is %q, want completed normal_clearing", end)
	}
	if c.answered.Before(killed) {
		r.continued++
	}
	return ""
}

// awaitPhones waits until another process has hung up the calls of the killed dialer, and until all
// phones that talk with the remaining dialer have received audio after the failover. Then the
// patient people hang up. Nothing can hang up a call that was answered before the kill if the
// standby lacks its answered leg.
func (x *trial) awaitPhones(killed time.Time) {
	x.t.Helper()
	resumed := time.Now()
	x.until("calls of the killed dialer are hung up, and conversations continue", func() (bool, error) {
		return !slices.ContainsFunc(x.phones.received(), func(c phoneCall) bool {
			switch {
			case c.begun.After(killed) || c.answered.IsZero() || !c.over.IsZero():
				return false
			case c.sentBy == x.killedSIP:
				return x.standbyLegs[c.callID] || c.answered.After(killed)
			}
			return c.lastAudio.Before(resumed)
		}), nil
	})
	x.phones.release()
}

// lostRequestFault checks that a call whose request and hold are lost is not charged. The API can
// have the call, because the dialer publishes it again.
func (x *trial) lostRequestFault(r *sipResult, c phoneCall) string {
	call, err := x.sip.Call(x.t.Context(), c.callID)
	if err != nil && strings.Contains(err.Error(), fmt.Sprintf(": %d ", http.StatusNotFound)) {
		return ""
	}
	if err != nil {
		return err.Error()
	}
	if call.CreditsCharged != "" {
		return fmt.Sprintf("the hold is lost, and %s is charged", call.CreditsCharged)
	}
	if call.Status == "completed" {
		r.uncharged++
	}
	return ""
}

// chargeFault compares a call in the API with its end in the database, and its charge with the time
// for which the phone was connected. A call that is not completed is not charged.
func (x *trial) chargeFault(c phoneCall, end string, killed time.Time) string {
	call, err := x.sip.Call(x.t.Context(), c.callID)
	if err != nil {
		return err.Error()
	}
	if call.HangupCause == nil {
		return fmt.Sprintf("the call is %s in the API, and has no cause", call.Status)
	}
	// The dialer stores no row for a lost call if another call to the number is live.
	if got := call.Status + " " + *call.HangupCause; end != "" && got != end {
		return fmt.Sprintf("the end in the API is %q, want %q", got, end)
	}
	if call.Status != "completed" {
		if call.CreditsCharged != "" {
			return fmt.Sprintf("the call is %s, and %s is charged, want nothing", call.Status, call.CreditsCharged)
		}
		return ""
	}
	if call.CreditsCharged == "" {
		return "the call is completed, and nothing is charged"
	}
	if call.Timings.TalkSeconds == nil {
		return "the call is completed, and has no talk time"
	}
	// The dialer receives the messages of the phone later than the phone sends them.
	talked := int((c.over.Sub(c.answered) + time.Second - 1) / time.Second)
	if got := *call.Timings.TalkSeconds; got < talked-1 || got > talked+1 {
		return fmt.Sprintf("the talk time is %d s, want %d s; answered %s before the kill", got, talked,
			killed.Sub(c.answered))
	}
	return ""
}

func (r *sipResult) countOrphan(c phoneCall) {
	switch {
	case c.hungUp:
		r.hungUp++
	case !c.answered.IsZero():
		r.left++
	}
}

// answeredLegs returns the answered SIP legs that are live in a database.
func answeredLegs(db *server) map[string]bool {
	legs := map[string]bool{}
	for _, id := range db.column(`
SELECT call_id::text FROM dialer.sip_legs WHERE ended_at IS NULL AND answered_at IS NOT NULL`) {
		legs[id] = true
	}
	return legs
}
