package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/sdp"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/siptest"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

// testWorkspace adds a test workspace. The returned rig uses the same dialers as r.
func (r *rig) testWorkspace() *rig {
	r.t.Helper()
	own := *r
	own.workspace, own.agent, own.test = uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7()), true
	own.announce(true, false)
	await(r.t, "the test workspace is stored", func() bool {
		var test bool
		err := r.pool.QueryRow(r.t.Context(), `SELECT w.test FROM workspaces w JOIN agents a USING (workspace_id)
			WHERE w.workspace_id = $1`, own.workspace).Scan(&test)
		return err == nil && test
	})
	return &own
}

// wantSimulatedOnly fails the test if the simulated carrier dialed a number that is not in numbers,
// or dialed a number twice.
func (r *rig) wantSimulatedOnly(numbers ...string) {
	r.t.Helper()
	var page struct{ Data []logLine }
	r.carrier("GET", "/log?after=0", "", &page)
	dials := map[string]int{}
	for _, line := range page.Data {
		if line.Kind == "originate" {
			dials[line.To]++
		}
	}
	for _, number := range numbers {
		if dials[number] != 1 {
			r.t.Errorf("dials of %s at the simulated carrier = %d, want 1", number, dials[number])
		}
		delete(dials, number)
	}
	if len(dials) > 0 {
		r.t.Errorf("other dials at the simulated carrier = %v, want none", dials)
	}
}

// Requests of the live workspace and of the test workspace are due at the same time and go to the
// same numbers.
func TestModes_EachCallUsesTheCarrierOfItsWorkspace(t *testing.T) {
	t.Parallel()
	live := newRig(t, "0")
	p := live.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t))
	dials := live.trunkThat(p, "busy", 1, func(c *siptest.Call) { c.Respond(180, ""); c.Respond(486, "") })
	test := live.testWorkspace()
	var numbers []string
	liveIDs, testIDs := map[string]uuid.UUID{}, map[string]uuid.UUID{}
	for i := range 8 {
		number := fmt.Sprintf("+1415555%02d95", i)
		numbers = append(numbers, number)
		liveIDs[number], testIDs[number] = live.request(number), test.request(number)
	}
	for number := range liveIDs {
		if got := last(live.ends(liveIDs[number])).GetCall().GetStatus(); got != "busy" {
			t.Errorf("live call to %s = %q, want busy, as the trunk responds", number, got)
		}
		if got := last(test.ends(testIDs[number])).GetCall(); got.GetStatus() != "completed" || got.GetBillableSeconds() < 1 {
			t.Errorf("test call to %s = %q with %d s, want completed with a charge, as the simulated person answers",
				number, got.GetStatus(), got.GetBillableSeconds())
		}
		if got := dials(number); got != 1 {
			t.Errorf("INVITEs to %s = %d, want 1", number, got)
		}
	}
	live.wantSimulatedOnly(numbers...)
}

// The dialer must not place a live call at the simulated carrier while the trunks refuse it. It
// must not place a test call over a trunk while the simulated carrier is down.
func TestModes_NoCallUsesTheCarrierOfTheOtherMode(t *testing.T) {
	t.Parallel()
	live := newRig(t, "0")
	p := live.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t), "CIRCUIT_FAILURES=1")
	first := live.trunkThat(p, "first", 1, func(c *siptest.Call) { c.Respond(503, "") })
	second := live.trunkThat(p, "second", 2, func(c *siptest.Call) { c.Respond(503, "") })
	test := live.testWorkspace()
	const refused, down, after = "+14155552195", "+14155552295", "+14155552395"
	live.ends(live.request(refused))
	if first(refused) != 1 || second(refused) != 1 {
		t.Errorf("INVITEs to the two trunks = %d and %d, want one each", first(refused), second(refused))
	}
	live.wantSimulatedOnly()

	live.sim.kill()
	waits := test.request(down)
	await(t, "the request is tried while the simulated carrier is down", func() bool {
		var fences int
		err := live.pool.QueryRow(t.Context(), `SELECT count(*) FROM fences WHERE call_request_id = $1`, waits).Scan(&fences)
		return err == nil && fences > 0
	})
	live.startCarrier()
	if got := last(test.ends(waits)).GetCall().GetStatus(); got != "completed" {
		t.Errorf("status of the request after the restart of the simulated carrier = %q, want completed", got)
	}
	test.ends(test.request(after))
	for _, number := range []string{down, after} {
		if first(number)+second(number) != 0 {
			t.Errorf("INVITEs of test calls to %s = %d, want 0", number, first(number)+second(number))
		}
	}
	live.wantSimulatedOnly(down, after)
}

func TestModes_TestCallIsNotSentToATrunkAfterACrash(t *testing.T) {
	t.Parallel()
	live, arm := newRig(t, "0.1"), filepath.Join(t.TempDir(), "armed")
	env := []string{"CARRIER=sip", "SIP_UDP_ADDR=" + freeAddr(t), "CRASH_FILE=" + arm}
	p := live.dialer(env...)
	dials := live.trunkThat(p, "busy", 1, func(c *siptest.Call) { c.Respond(180, ""); c.Respond(486, "") })
	test := live.testWorkspace()
	for i, point := range []string{
		"dialer: after claim", "dialer: after intent", "dialer: after fence", "dialer: before originate",
		"dialer: after originate", "dialer: after originate commit", "dialer: before events", "dialer: after events",
	} {
		if err := os.WriteFile(arm, []byte(point), 0o600); err != nil {
			t.Fatal(err)
		}
		number := fmt.Sprintf("+1415556%02d01", i)
		id := test.request(number)
		await(t, "the process dies: "+point, p.ended)
		p = live.dialer(env...)
		test.ends(id)
		if got := dials(number); got != 0 {
			t.Errorf("%s: INVITEs = %d, want 0", point, got)
		}
		if got := len(live.log("originate", number)); got > 1 {
			t.Errorf("%s: dials at the simulated carrier = %d, want at most 1", point, got)
		}
	}
	var wrong int
	if err := live.pool.QueryRow(t.Context(), `SELECT count(*) FROM fences WHERE trunk <> 'test'`).
		Scan(&wrong); err != nil {
		t.Fatal(err)
	}
	if wrong != 0 {
		t.Errorf("fences over another carrier = %d, want 0", wrong)
	}
}

func TestModes_TestCallFailsWithoutSimulatedCarrier(t *testing.T) {
	t.Parallel()
	live := newRig(t, "0")
	p := live.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t), "SIM_URL=")
	dials := live.trunkThat(p, "busy", 1, func(c *siptest.Call) { c.Respond(180, ""); c.Respond(486, "") })
	test := live.testWorkspace()
	const liveNumber, testNumber = "+14155553101", "+14155553201"
	failed := last(test.ends(test.request(testNumber))).GetFailed()
	if got := failed.GetErrorCode(); got != "provider_unavailable" {
		t.Errorf("error code of the test request = %q, want provider_unavailable", got)
	}
	if got := failed.GetErrorDetail(); !strings.Contains(got, "SIM_URL") {
		t.Errorf("error detail = %q, want it to name the setting SIM_URL", got)
	}
	live.ends(live.request(liveNumber))
	if got := dials(liveNumber); got != 1 {
		t.Errorf("INVITEs of the live request = %d, want 1", got)
	}
	if got := dials(testNumber); got != 0 {
		t.Errorf("INVITEs of the test request = %d, want 0", got)
	}
	live.wantSimulatedOnly()
}

func (r *rig) assign(p *process, number string) {
	r.t.Helper()
	body := `{"phone_e164":"` + number + `","agent_id":"` + r.agent.String() + `"}`
	if status, answer := r.admin(p, "POST", "/numbers", body); status != 201 {
		r.t.Fatalf("POST numbers = %d %v, want 201", status, answer)
	}
}

func TestModes_InboundCallReachesOnlyAWorkspaceOfItsCarrier(t *testing.T) {
	t.Parallel()
	live := newRig(t, "0.1")
	address := freeAddr(t)
	p := live.dialer("CARRIER=sip", "SIP_UDP_ADDR="+address)
	test := live.testWorkspace()
	const liveNumber, testNumber = "+14155559001", "+14155559002"
	live.assign(p, liveNumber)
	test.assign(p, testNumber)
	live.publish(kafka.Agents, live.agent, &eventv1.AgentEvent{
		AgentId: live.agent.String(), WorkspaceId: live.workspace.String(), Version: time.Now().UnixNano(),
		Event: &eventv1.AgentEvent_Agent{Agent: &eventv1.Agent{
			Name: "Ida", FromE164: dialqueue.DefaultFrom, MaxCallSeconds: 60,
			SettingsJson: []byte(`{"script":{"tone_hz":440,"tone_millis":200,"end_after_millis":400}}`),
		}},
	})

	toTest, toLive := live.callFromSimulator(testNumber), live.callFromSimulator(liveNumber)
	await(t, "the test workspace's call ends", func() bool {
		return strings.Contains(names(live.factsOf(toTest)), "ended")
	})
	if got := last(live.factsOf(toTest)).GetWorkspaceId(); got != test.workspace.String() {
		t.Errorf("workspace of the simulated call = %s, want the test workspace", got)
	}
	await(t, "the simulated call to the live number is hung up", func() bool {
		for _, line := range live.log("hangup", liveNumber) {
			if line.CallID == toLive {
				return true
			}
		}
		return false
	})
	if got := len(live.log("answer", liveNumber)); got != 0 {
		t.Errorf("simulated calls to the live number that were answered = %d, want 0", got)
	}
	if got := names(live.factsOf(toLive)); got != "" {
		t.Errorf("events of the simulated call to the live number = %q, want none", got)
	}

	if status, response := live.asOperator("POST", "http://"+p.addr+"/admin/v1/trunks",
		`{"name":"near","host":"127.0.0.1","port":9}`); status != 201 {
		t.Fatalf("POST trunk = %d %v", status, response)
	}
	phone, err := sip.New(sip.Config{UDP: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(phone.Close)
	us := netip.MustParseAddrPort(address)
	ring := func(to string) (status int, answered bool) {
		t.Helper()
		body, err := sdp.NewSession(1, sdp.Local{Address: us.Addr(), Port: 40000}).Offer(sdp.Both)
		if err != nil {
			t.Fatal(err)
		}
		over := make(chan sip.End, 1)
		_, err = phone.Invite(t.Context(), sip.Trunk{Name: "us", Host: us.Addr().String(), Port: int(us.Port()),
			Transport: transport.UDP, CallerID: sip.InFrom},
			sip.Invite{CallID: uuid.NewString(), From: "+14155550001", To: to, Body: body, FirstResponse: time.Second},
			sip.Observer{Answered: func(time.Time, []byte) error { answered = true; return nil },
				Ended: func(e sip.End) { over <- e }})
		if err != nil {
			t.Fatal(err)
		}
		return (<-over).Status, answered
	}
	await(t, "a phone reaches the live number", func() bool {
		_, answered := ring(liveNumber)
		return answered
	})
	if status, answered := ring(testNumber); status != 404 || answered {
		t.Errorf("call of a phone to the test number = %d, answered %v, want 404", status, answered)
	}
}

// callFromSimulator starts an inbound call at the simulated carrier and returns its id.
func (r *rig) callFromSimulator(to string) (callID string) {
	r.t.Helper()
	var started struct {
		CallID string `json:"call_id"`
	}
	r.carrier("POST", "/inbound", `{"from":"+14155550100","to":"`+to+`"}`, &started)
	return started.CallID
}
