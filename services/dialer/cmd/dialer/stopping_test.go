package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/sip"
)

// The dialer sends the BYE after DRAIN_LIMIT, or at the second signal.
func TestSIP_StopHangsUpLiveCalls(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		limit   string
		signals []syscall.Signal
	}{
		{name: "after DRAIN_LIMIT", limit: "300ms", signals: []syscall.Signal{syscall.SIGTERM}},
		{name: "at the second signal", limit: "1h", signals: []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM}},
		{name: "at SIGINT after SIGTERM, as from make run", limit: "1h",
			signals: []syscall.Signal{syscall.SIGTERM, syscall.SIGINT}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r, p, h := liveCall(t, test.limit)
			sendStops(t, p, test.signals)
			select {
			case end := <-h.ended:
				if end.ByUs {
					t.Error("the call was ended by the phone, want by the dialer")
				}
			case <-time.After(testkit.Timeout):
				t.Fatal("the phone is still connected")
			}
			select {
			case <-p.done:
			case <-time.After(testkit.Timeout):
				t.Fatal("the dialer did not end")
			}
			if code := p.cmd.ProcessState.ExitCode(); code != 0 {
				t.Errorf("exit status = %d, want 0", code)
			}
			var live int
			err := r.pool.QueryRow(t.Context(), "SELECT count(*) FROM sip_legs WHERE ended_at IS NULL").Scan(&live)
			if err != nil {
				t.Fatalf("count live calls: %v", err)
			}
			if live != 0 {
				t.Errorf("live calls after the stop = %d, want 0", live)
			}
		})
	}
}

// sendStops sends the signals one after the other. The operating system can merge two equal
// signals, so sendStops waits until the process has received the first signal.
func sendStops(t *testing.T, p *process, signals []syscall.Signal) {
	t.Helper()
	for i, stop := range signals {
		if err := p.cmd.Process.Signal(stop); err != nil {
			t.Fatalf("signal: %v", err)
		}
		if i == 0 && len(signals) > 1 && signals[1] != stop {
			continue
		}
		await(t, "the dialer drains", func() bool {
			return strings.Contains(p.output(), "waiting for live calls")
		})
	}
}

const agentNumber = "+14155559100"

// newAnsweringRig starts a dialer with DRAIN_LIMIT set to drainLimit, and returns its SIP address
// as the last result. The trunk has no media timeout, because the phones send no audio.
func newAnsweringRig(t *testing.T, drainLimit string) (*rig, *process, string) {
	t.Helper()
	r, address := newRig(t, "0"), freeAddr(t)
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+address, "DRAIN_LIMIT="+drainLimit)
	r.publish(kafka.Agents, r.agent, &eventv1.AgentEvent{
		AgentId: r.agent.String(), WorkspaceId: r.workspace.String(), Version: time.Now().UnixNano(),
		Event: &eventv1.AgentEvent_Agent{Agent: &eventv1.Agent{
			Name: "Ida", FromE164: dialqueue.DefaultFrom, MaxCallSeconds: 300,
			SettingsJson: []byte(`{"silence_seconds":300,"script":{"tone_hz":440,"tone_millis":200}}`),
		}},
	})
	trunk := `{"name":"near","host":"127.0.0.1","port":9,"media_timeout_seconds":0}`
	status, body := r.asOperator("POST", "http://"+p.addr+"/admin/v1/trunks", trunk)
	if status != 201 {
		t.Fatalf("POST /admin/v1/trunks = %d %v, want 201", status, body)
	}
	status, body = r.admin(p, "POST", "/numbers", `{"phone_e164":"`+agentNumber+`","agent_id":"`+r.agent.String()+`"}`)
	if status != 201 {
		t.Fatalf("POST /numbers = %d %v, want 201", status, body)
	}
	return r, p, address
}

func liveCall(t *testing.T, drainLimit string) (*rig, *process, heldCall) {
	t.Helper()
	r, p, address := newAnsweringRig(t, drainLimit)
	agent, err := sip.New(sip.Config{UDP: "127.0.0.1:0"})
	if err != nil {
		t.Fatalf("open the phone: %v", err)
	}
	t.Cleanup(agent.Close)
	var port int
	if _, err := fmt.Sscanf(address, "127.0.0.1:%d", &port); err != nil {
		t.Fatalf("read %s: %v", address, err)
	}
	phone := &callers{t: t, agent: agent, proxy: port, to: agentNumber}
	var live heldCall
	await(t, "the call is answered", func() (answered bool) {
		live, answered = phone.call()
		return answered
	})
	return r, p, live
}
