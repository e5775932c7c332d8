package main

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/sdp"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/siptest"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

// heldCall is an inbound call that continues until its caller hangs up.
type heldCall struct {
	*sip.Dialog
	answered chan struct{}
	ended    chan sip.End
}

type callers struct {
	t     *testing.T
	agent *sip.UserAgent
	proxy int
	to    string
}

// call places one call and returns when the call is answered or has ended.
func (c *callers) call() (h heldCall, answered bool) {
	c.t.Helper()
	body, err := sdp.NewSession(1, sdp.Local{Address: netip.MustParseAddr("127.0.0.1"), Port: 40000}).Offer(sdp.Both)
	if err != nil {
		c.t.Fatal(err)
	}
	h = heldCall{answered: make(chan struct{}), ended: make(chan sip.End, 1)}
	h.Dialog, err = c.agent.Invite(c.t.Context(), sip.Trunk{Name: "us", Host: "127.0.0.1", Port: c.proxy,
		Transport: transport.UDP, CallerID: sip.InFrom},
		sip.Invite{CallID: uuid.NewString(), From: "+14155550001", To: c.to, Body: body, FirstResponse: 10 * time.Second},
		sip.Observer{Answered: func(time.Time, []byte) error { close(h.answered); return nil },
			Ended: func(e sip.End) { h.ended <- e }})
	if err != nil {
		c.t.Fatal(err)
	}
	select {
	case <-h.answered:
		return h, true
	case end := <-h.ended:
		h.ended <- end
		return h, false
	case <-time.After(testkit.Timeout):
		c.t.Fatal("a call is neither answered nor refused")
		return h, false
	}
}

func TestSIP_ReplicaThatDrainsBehindADispatcherLosesNoCall(t *testing.T) {
	t.Parallel()
	const ours, each = "+14155559100", 3
	r, addresses := newRig(t, "0"), []string{freeAddr(t), freeAddr(t)}
	port := siptest.Kamailio(t, siptest.Dispatching, "1 sip:"+addresses[0], "1 sip:"+addresses[1])
	var both []*process
	for _, address := range addresses {
		both = append(both, r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+address, "DRAIN_LIMIT=2m"))
	}
	r.publish(kafka.Agents, r.agent, &eventv1.AgentEvent{
		AgentId: r.agent.String(), WorkspaceId: r.workspace.String(), Version: time.Now().UnixNano(),
		Event: &eventv1.AgentEvent_Agent{Agent: &eventv1.Agent{
			Name: "Ida", FromE164: dialqueue.DefaultFrom, MaxCallSeconds: 300,
			SettingsJson: []byte(`{"silence_seconds":300,"script":{"tone_hz":440,"tone_millis":200}}`),
		}},
	})
	if status, response := r.asOperator("POST", "http://"+both[0].addr+"/admin/v1/trunks",
		fmt.Sprintf(`{"name":"dispatcher","host":"127.0.0.1","port":%d}`, port)); status != 201 {
		t.Fatalf("POST = %d %v", status, response)
	}
	if status, response := r.admin(both[0], "POST", "/numbers",
		`{"phone_e164":"`+ours+`","agent_id":"`+r.agent.String()+`"}`); status != 201 {
		t.Fatalf("POST = %d %v", status, response)
	}
	agent, err := sip.New(sip.Config{UDP: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(agent.Close)
	callers, all := &callers{t: t, agent: agent, proxy: port, to: ours}, []heldCall(nil)
	await(t, "both dialers have calls", func() bool {
		if h, answered := callers.call(); answered {
			all = append(all, h)
		}
		var owners int
		err := r.pool.QueryRow(t.Context(),
			"SELECT count(*) FROM (SELECT owner FROM sip_legs WHERE ended_at IS NULL AND answered_at IS NOT NULL GROUP BY owner HAVING count(*) >= $1) AS o", each).Scan(&owners)
		return err == nil && owners == 2
	})
	if err := both[0].cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// These calls begin directly after SIGTERM. The dispatcher can still send calls to the stopping
	// dialer. That dialer refuses them, and the dispatcher retries them at the second dialer.
	for range 2 * each {
		h, answered := callers.call()
		if !answered {
			t.Errorf("a caller was turned away: %+v", <-h.ended)
		}
		all = append(all, h)
	}
	select {
	case <-both[0].done:
		t.Error("the dialer ended before its calls")
	default:
	}
	for _, h := range all {
		select {
		case end := <-h.ended:
			t.Errorf("a call was ended by the drain: %+v", end)
		default:
		}
		_ = h.Hangup(t.Context(), callstate.NormalClearing)
	}
	await(t, "the dialer ends", func() bool {
		select {
		case <-both[0].done:
			return true
		default:
			return false
		}
	})
	if code := both[0].cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	await(t, "all events of all calls are published", func() bool {
		var completed, others int
		err := r.pool.QueryRow(t.Context(),
			"SELECT count(*) FILTER (WHERE status = 'completed' AND hangup_cause = 'normal_clearing'), count(*) FILTER (WHERE status NOT IN ('completed', 'failed', 'no_answer', 'canceled')) FROM calls WHERE direction = 'inbound'").
			Scan(&completed, &others)
		return err == nil && completed == len(all) && others == 0
	})
}
