package main

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"ringfence.dev/services/dialer/internal/sip/siptest"
)

func (r *rig) setDialing(p *process, path, state string) (respondedAt time.Time) {
	r.t.Helper()
	body := `{"state":"` + state + `","reason":"Wrong script"}`
	status, answer := r.asOperator("PUT", "http://"+p.addr+"/admin/v1"+path, body)
	respondedAt = time.Now()
	if status != http.StatusOK {
		r.t.Fatalf("PUT %s = %d %v, want 200", path, status, answer)
	}
	if answer["state"] != state {
		r.t.Fatalf("state = %v, want %q", answer["state"], state)
	}
	return respondedAt
}

type dialTime struct {
	To string    `json:"to"`
	At time.Time `json:"at"`
}

func (r *rig) dials() (dials []dialTime) {
	r.t.Helper()
	for after := 0; ; {
		var page struct {
			Data []struct {
				dialTime
				Seq  int    `json:"seq"`
				Kind string `json:"kind"`
			}
		}
		r.carrier(http.MethodGet, fmt.Sprintf("/log?after=%d", after), "", &page)
		if len(page.Data) == 0 {
			return dials
		}
		for _, line := range page.Data {
			if after = line.Seq; line.Kind == "originate" {
				dials = append(dials, line.dialTime)
			}
		}
	}
}

// 200 requests per second become due. After a pause, one of two dialers is killed and replaced. The
// requests have different agents, so the dialers still have requests to dial while one agent is
// paused.
func TestPause_StopsDialsWithinTwoSecondsAndLosesNoRequest(t *testing.T) {
	t.Parallel()
	const requests = 1200
	const dueRequests = `
INSERT INTO dial_queue (call_request_id, workspace_id, state, to_e164, agent_id, max_call_seconds, queued_at, due_at,
	look_at)
SELECT gen_random_uuid(), $1, 'queued', '+1415' || lpad(n::text, 5, '0') || '01', $2, 600, now(),
	now() + n * interval '5 milliseconds', now() + n * interval '5 milliseconds'
FROM generate_series(1, $3::integer) n`
	for _, level := range []string{"everything", "workspace", "agent"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "0.01")
			first, second := r.dialer(), r.dialer()
			r.ends(r.request("+14159999901")) // after this call, the dialers have stored the workspace and the agent
			path := map[string]string{
				"everything": "/dialing", "workspace": "/workspaces/" + r.workspace.String() + "/dialing",
				"agent": "/workspaces/" + r.workspace.String() + "/agents/" + r.agent.String() + "/dialing",
			}[level]
			if _, err := r.pool.Exec(t.Context(), dueRequests, r.workspace, r.agent, requests); err != nil {
				t.Fatal(err)
			}
			await(t, "some requests are dialed", func() bool { return len(r.dials()) > 50 })
			pausedAt := r.setDialing(second, path, "paused")
			time.Sleep(time.Until(pausedAt.Add(2500 * time.Millisecond)))
			first.kill()
			third := r.dialer()
			time.Sleep(time.Until(pausedAt.Add(5 * time.Second)))
			r.within(t).wantPaused(pausedAt, requests+1)
			r.setDialing(third, path, "active")
			r.within(t).wantEachDialedOnce(requests + 1)
		})
	}
}

// wantPaused checks that the dialers placed no call more than 2 s after pausedAt. All requests that
// were not dialed must be queued.
func (r *rig) wantPaused(pausedAt time.Time, requests int) {
	r.t.Helper()
	dials := r.dials()
	for _, dial := range dials {
		if late := dial.At.Sub(pausedAt); late > 2*time.Second {
			r.t.Errorf("%s was dialed %s after the response to the pause", dial.To, late)
		}
	}
	if len(dials) >= requests {
		r.t.Fatalf("dials before the pause = %d, so the pause shows nothing", len(dials))
	}
	var queued int
	const waiting = "SELECT count(*) FROM dial_queue WHERE state = 'queued'"
	if err := r.pool.QueryRow(r.t.Context(), waiting).Scan(&queued); err != nil {
		r.t.Fatal(err)
	}
	if want := requests - len(dials); queued != want {
		r.t.Errorf("queued requests = %d, want %d", queued, want)
	}
}

func (r *rig) wantEachDialedOnce(requests int) {
	r.t.Helper()
	await(r.t, "every request ends", func() bool {
		var left int
		const open = "SELECT count(*) FROM dial_queue WHERE state IN ('queued', 'dialing')"
		return r.pool.QueryRow(r.t.Context(), open).Scan(&left) == nil && left == 0
	})
	times := map[string]int{}
	for _, dial := range r.dials() {
		times[dial.To]++
	}
	if len(times) != requests {
		r.t.Errorf("dialed numbers = %d, want %d", len(times), requests)
	}
	for to, n := range times {
		if n != 1 {
			r.t.Errorf("dials of %s = %d, want 1", to, n)
		}
	}
}

// The pause begins while the first trunk processes the INVITE. The first trunk then refuses the
// call. Without the pause, the dialer would send the call to the next trunk.
func TestPause_CallRefusedByATrunkIsNotSentToAnotherTrunk(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t))
	var once sync.Once
	first := r.trunkThat(p, "first", 1, func(c *siptest.Call) {
		once.Do(func() {
			r.setDialing(p, "/dialing", "paused")
			time.Sleep(1500 * time.Millisecond) // wait until the dialer has read the pause
		})
		c.Respond(503, "")
	})
	second := r.trunkThat(p, "second", 2, func(c *siptest.Call) { c.Respond(486, "") })
	const number = "+14155551201"
	id := r.request(number)
	await(t, "the request is queued again", func() bool {
		var queued bool
		err := r.pool.QueryRow(t.Context(), `
			SELECT state = 'queued' AND EXISTS (SELECT FROM fences f WHERE f.call_request_id = q.call_request_id)
			FROM dial_queue q WHERE call_request_id = $1`, id).Scan(&queued)
		return err == nil && queued
	})
	time.Sleep(time.Second)
	if got := first(number); got != 1 {
		t.Errorf("INVITE requests to the first trunk = %d, want 1", got)
	}
	if got := second(number); got != 0 {
		t.Errorf("INVITE requests to the second trunk during the pause = %d, want 0", got)
	}
	r.setDialing(p, "/dialing", "active")
	facts := r.ends(id)
	if got := second(number); got != 1 {
		t.Errorf("INVITE requests to the second trunk after the pause = %d, want 1; events %s", got, names(facts))
	}
}

func TestPause_CallsUseTheTrunkThatIsNotPaused(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t))
	busy := func(c *siptest.Call) { c.Respond(486, "") }
	first, second := r.trunkThat(p, "first", 1, busy), r.trunkThat(p, "second", 2, busy)
	_, listed := r.asOperator("GET", "http://"+p.addr+"/admin/v1/trunks", "")
	paths := map[string]string{}
	for _, one := range listed["data"].([]any) {
		trunk := one.(map[string]any)
		paths[trunk["name"].(string)] = "/trunks/" + trunk["id"].(string) + "/dialing"
	}
	const one, two, three = "+14155551301", "+14155551302", "+14155551303"
	r.ends(r.request(one))
	pausedAt := r.setDialing(p, paths["first"], "paused")
	time.Sleep(time.Until(pausedAt.Add(2 * time.Second)))
	r.ends(r.request(two))
	r.setDialing(p, paths["second"], "paused")
	time.Sleep(2 * time.Second)
	id := r.request(three)
	time.Sleep(2 * time.Second)
	var state string
	err := r.pool.QueryRow(t.Context(), "SELECT state FROM dial_queue WHERE call_request_id = $1", id).Scan(&state)
	if err != nil || state != "queued" {
		t.Errorf("state while both trunks are paused = %q, %v, want queued", state, err)
	}
	r.setDialing(p, paths["second"], "active")
	r.ends(id)
	for number, want := range map[string][2]int{one: {1, 0}, two: {0, 1}, three: {0, 1}} {
		if got := [2]int{first(number), second(number)}; got != want {
			t.Errorf("INVITE requests of %s to the two trunks = %v, want %v", number, got, want)
		}
	}
}
