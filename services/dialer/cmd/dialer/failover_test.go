package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"ringfence.dev/services/dialer/internal/sip/siptest"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

func (r *rig) trunkThat(p *process, name string, priority int, script func(*siptest.Call)) (dials func(to string) int) {
	r.t.Helper()
	var mu sync.Mutex
	heard := map[string]int{}
	x := siptest.New(r.t, transport.Config{UDP: "127.0.0.1:0"})
	x.On("", func(c *siptest.Call) {
		mu.Lock()
		heard[c.Invite.Recipient.User]++
		mu.Unlock()
		script(c)
	})
	status, response := r.asOperator("POST", "http://"+p.addr+"/admin/v1/trunks",
		fmt.Sprintf(`{"name":%q,"host":"127.0.0.1","port":%d,"priority":%d,"channels":100,"calls_per_second":100}`, name, x.Port(transport.UDP), priority))
	if status != 201 {
		r.t.Fatalf("POST = %d %v", status, response)
	}
	path := "http://" + p.addr + "/admin/v1/trunks/" + response["id"].(string)
	// The dialer sends no call to a trunk that has not answered OPTIONS yet.
	await(r.t, "the trunk has answered OPTIONS", func() bool {
		status, response := r.asOperator("GET", path, "")
		return status == 200 && response["state"] == "up"
	})
	return func(to string) int {
		mu.Lock()
		defer mu.Unlock()
		return heard[to]
	}
}

func TestFailover_SecondTrunkIsNotDialedAfterACrash(t *testing.T) {
	t.Parallel()
	whole, arm := newRig(t, "0"), filepath.Join(t.TempDir(), "armed")
	r := whole
	env := []string{"CARRIER=sip", "SIP_UDP_ADDR=" + freeAddr(t), "CRASH_FILE=" + arm}
	p := whole.dialer(env...)
	first := r.trunkThat(p, "refuses", 1, func(c *siptest.Call) { c.Respond(100, ""); c.Respond(503, "") })
	second := r.trunkThat(p, "rings", 2, func(c *siptest.Call) { c.Respond(180, ""); c.Respond(486, "") })
	const number = "+14155551301"
	facts := r.ends(r.request(number))
	if got := names(facts); got != "dialing dialing ringing ended" {
		t.Errorf(`facts: got = %q, want "dialing dialing ringing ended"`, got)
	} else if value := last(facts).GetCall().GetStatus(); value != "busy" {
		t.Errorf(`facts: last(facts).GetCall().GetStatus() = %q, want "busy"`, value)
	}
	if got := first(number); got != 1 {
		t.Errorf("first(number) = %v, want 1", got)
	} else if got := second(number); got != 1 {
		t.Errorf("second(number) = %v, want 1", got)
	}
	for i, point := range []string{"dialer over sip: after refusal", "dialer over sip: after second fence"} {
		t.Run(strings.ReplaceAll(point, " ", "_"), func(t *testing.T) {
			r := whole.within(t)
			if err := os.WriteFile(arm, []byte(point), 0o600); err != nil {
				t.Fatal(err)
			}
			number := fmt.Sprintf("+1415555132%d", i)
			id := r.request(number)
			<-p.done
			p = whole.dialer(env...)
			facts := r.ends(id)
			wantOneDial(t, r, number, facts)
			if end := last(facts).GetCall(); end.GetErrorCode() != "dial_state_unknown" {
				t.Errorf(`facts: end.GetErrorCode() = %q, want "dial_state_unknown"; names(facts) = %s; last(facts) = %v`,
					end.GetErrorCode(), names(facts), last(facts))
			} else if end.GetBillableSeconds() != 0 {
				t.Errorf("facts: end.GetBillableSeconds() = %v, want 0; names(facts) = %s; last(facts) = %v",
					end.GetBillableSeconds(), names(facts), last(facts))
			}
			if got := first(number); got != 1 {
				t.Errorf("first(number) = %v, want 1", got)
			} else if got := second(number); got != 0 {
				t.Errorf("second(number) = %v, want 0", got)
			}
		})
	}
	var voids, inUse int
	err := r.pool.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE status = 'void'),
		(SELECT count(*) FROM dial_queue WHERE state IN ('queued', 'dialing')) FROM calls`).Scan(&voids, &inUse)
	if err != nil {
		t.Fatalf("count void calls and requests in use: %v", err)
	}
	if voids != 2 {
		t.Errorf("void calls = %d, want 2", voids)
	}
	if inUse != 0 {
		t.Errorf("requests that are queued or in a call = %d, want 0", inUse)
	}
}
