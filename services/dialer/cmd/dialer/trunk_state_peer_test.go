package main

import (
	"testing"

	"ringfence.dev/services/dialer/internal/callstate"
)

// The trunk's circuit is open only in the replica that dialed.
func TestTrunkState_IsShownForAllReplicas(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	port := startTrunk(t, scenario("", again))
	first := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t), "CIRCUIT_REST=1h")
	second := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t), "CIRCUIT_REST=1h")
	path := r.addTrunk(first, port, `,"username":"account","password":"wrong"`)
	id := path[len(path)-36:]
	state := func(p *process) map[string]any {
		status, response := r.asOperator("GET", "http://"+p.addr+"/admin/v1/trunks/"+id, "")
		if status != 200 {
			t.Fatalf("GET trunk = %d %v, want 200", status, response)
		}
		return response
	}
	await(t, "both replicas report that the trunk is up", func() bool {
		response := state(second)
		return response["state"] == "up" && len(response["replicas"].([]any)) == 2
	})
	answer := state(second)["last_answer"].(map[string]any)
	if got, want := answer["status"], 200.0; got != want {
		t.Errorf("status of the last answer = %v, want %v", got, want)
	}
	request := r.request("+14155551311")
	for _, p := range []*process{first, second} {
		await(t, "the failed call is reported", func() bool {
			return state(p)["recent"].(map[string]any)["failures"].(float64) > 0
		})
		response := state(p)
		if got := response["circuit_open_until"]; got == nil {
			t.Error("circuit_open_until = null, want the time of the next test")
		}
		if got, want := response["recent"].(map[string]any)["error_rate"], 1.0; got != want {
			t.Errorf("error rate = %v, want %v", got, want)
		}
	}
	if status, response := r.asOperator("PATCH", path, `{"password":"secret"}`); status != 200 {
		t.Fatalf("PATCH trunk = %d %v, want 200", status, response)
	}
	end := last(r.ends(request)).GetCall()
	if got, want := end.GetHangupCause(), string(callstate.UserBusy); got != want {
		t.Errorf("hangup cause = %q, want %q", got, want)
	}
	await(t, "both replicas report that the trunk is up again", func() bool {
		response := state(second)
		return response["state"] == "up" && len(response["replicas"].([]any)) == 2
	})
}
