package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTrunkCheck_TestsTheCredentials(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	changes := strings.NewReplacer(`<recv request="ACK"/>`, "", "INVITE", "REGISTER", "486 Busy Here", "200 OK")
	registrar := changes.Replace(challengeScenario)
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t))
	path := r.addTrunk(p, startTrunk(t, registrar), `,"username":"account","password":"wrong"`)
	check := func() (steps []string, ok bool) {
		status, response := r.asOperator("POST", path+"/check", "")
		if status != 200 {
			t.Fatalf("POST check = %d %v, want 200", status, response)
		}
		for _, each := range response["steps"].([]any) {
			step := each.(map[string]any)
			steps = append(steps, step["step"].(string)+" "+step["result"].(string))
		}
		return steps, response["ok"].(bool)
	}
	steps, ok := check()
	want := []string{"dns skipped", "transport ok", "tls skipped", "options ok", "digest failed"}
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Errorf("steps with a wrong password differ (-want +got):\n%s", diff)
	}
	if ok {
		t.Error("ok with a wrong password = true, want false")
	}
	if status, response := r.asOperator("PATCH", path, `{"password":"secret"}`); status != 200 {
		t.Fatalf("PATCH trunk = %d %v, want 200", status, response)
	}
	steps, ok = check()
	want[4] = "digest ok"
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Errorf("steps with the right password differ (-want +got):\n%s", diff)
	}
	if !ok {
		t.Error("ok with the right password = false, want true")
	}
}

func TestTrunkCheck_IsRefusedWithoutSIP(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	path := r.addTrunk(r.dialer(), 5060, "")
	status, response := r.asOperator("POST", path+"/check", "")
	if status != 409 {
		t.Errorf("status = %d, want 409", status)
	}
	if got, want := response["error"].(map[string]any)["code"], "no_sip"; got != want {
		t.Errorf("code = %v, want %q", got, want)
	}
}
