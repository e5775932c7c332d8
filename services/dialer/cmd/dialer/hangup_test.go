package main

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"
	sipmsg "github.com/emiago/sipgo/sip"
	"github.com/google/uuid"

	"ringfence.dev/proto/dialerv1"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/sdp"
	"ringfence.dev/services/dialer/internal/sip/siptest"
)

// hangUp requests the hang-up of a call as the service `calls`.
func (r *rig) hangUp(p *process, workspace uuid.UUID, callID string) (live bool, err error) {
	client := dialerv1.NewHangupServiceClient(http.DefaultClient, "http://"+p.addr,
		connect.WithInterceptors(r.calls.ClientInterceptor(serviceName)))
	ctx, cancel := context.WithTimeout(r.t.Context(), waitTimeout)
	defer cancel()
	resp, err := client.RequestHangup(ctx, connect.NewRequest(&dialerv1.RequestHangupRequest{
		CallId: callID, WorkspaceId: workspace.String(),
	}))
	if err != nil {
		return false, err
	}
	return resp.Msg.GetLive(), nil
}

// callOf waits until the call of a call request has the status, and returns the id of the call.
func (r *rig) callOf(id uuid.UUID, status string) (callID string) {
	r.t.Helper()
	await(r.t, "the call is "+status, func() bool {
		err := r.pool.QueryRow(r.t.Context(),
			"SELECT call_id FROM calls WHERE call_request_id = $1 AND status = $2", id, status).Scan(&callID)
		return err == nil
	})
	return callID
}

func wantHungUp(t *testing.T, c *eventv1.Call, answered bool) {
	t.Helper()
	status, cause := "canceled", "originator_cancel"
	if answered {
		status, cause = "completed", "normal_clearing"
	}
	if got := c.GetStatus(); got != status {
		t.Errorf("status = %q, want %q", got, status)
	}
	if got := c.GetHangupCause(); got != cause {
		t.Errorf("hangup cause = %q, want %q", got, cause)
	}
	if charged := c.GetBillableSeconds() > 0; charged != answered {
		t.Errorf("charged = %t, want %t", charged, answered)
	}
}

// The hang-up request is sent to a process that does not own the call. It is sent twice, and
// another workspace also requests the hang-up of this call.
func TestHangup_EndsRingingAndAnsweredCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t, "8") // all durations are multiplied by 8, so a simulated person talks for at least 16 s
	r.dialer()
	other := r.dialer()
	for _, tt := range []struct {
		name, to, status string
		answered         bool
	}{
		{name: "ringing", to: "+14155551298", status: "ringing"},
		{name: "answered", to: "+14155551201", status: "in_progress", answered: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := r.within(t)
			id := r.request(tt.to)
			callID := r.callOf(id, tt.status)
			if live, err := r.hangUp(other, uuid.Must(uuid.NewV7()), callID); err != nil || live {
				t.Errorf("hang-up by another workspace = %t, %v, want false", live, err)
			}
			if live, err := r.hangUp(other, r.workspace, callID); err != nil || !live {
				t.Fatalf("hang-up = %t, %v, want true", live, err)
			}
			if _, err := r.hangUp(other, r.workspace, callID); err != nil {
				t.Errorf("repeated hang-up: %v", err)
			}
			facts := r.ends(id)
			wantHungUp(t, endOf(facts), tt.answered)
			await(t, "a hang-up of the ended call is refused", func() bool {
				live, err := r.hangUp(other, r.workspace, callID)
				return err == nil && !live
			})
			if got := len(r.log("originate", tt.to)); got != 1 {
				t.Errorf("dials = %d, want 1", got)
			}
			if got := len(r.log("hangup", tt.to)); got != 1 {
				t.Errorf("hang-ups at the carrier = %d, want 1", got)
			}
		})
	}
}

func endOf(facts []eventRecord) *eventv1.Call {
	for _, f := range facts {
		if f.name == "ended" {
			return f.event.GetCall()
		}
	}
	return nil
}

// The process dies after it has stored the hang-up request and before it hangs up the call.
func TestHangup_StoredRequestSurvivesACrash(t *testing.T) {
	t.Parallel()
	r, arm := newRig(t, "8"), filepath.Join(t.TempDir(), "armed")
	p := r.dialer("CRASH_FILE=" + arm)
	id := r.request("+14155551201")
	callID := r.callOf(id, "in_progress")
	if err := os.WriteFile(arm, []byte("dialer: after hangup request"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.hangUp(p, r.workspace, callID); err == nil {
		t.Error("hang-up was answered, want no answer")
	}
	<-p.done
	r.dialer()
	wantHungUp(t, endOf(r.ends(id)), true)
}

func TestHangup_WorkspaceHangupEndsOutboundAndInboundCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t, "8")
	p := r.dialer()
	talks, rings := r.request("+14155551201"), r.request("+14155551298")
	r.callOf(talks, "in_progress")
	r.callOf(rings, "ringing")
	line := "+14155559001"
	body := fmt.Sprintf(`{"phone_e164":%q,"agent_id":%q}`, line, r.agent)
	if status, answer := r.admin(p, "POST", "/numbers", body); status != http.StatusCreated {
		t.Fatalf("POST numbers = %d %v, want 201", status, answer)
	}
	var arrived struct {
		CallID string `json:"call_id"`
	}
	r.carrier(http.MethodPost, "/inbound", fmt.Sprintf(`{"from":"+14155550101","to":%q}`, line), &arrived)
	await(t, "the inbound call is answered", func() bool {
		var status string
		err := r.pool.QueryRow(t.Context(), "SELECT status FROM calls WHERE call_id = $1", arrived.CallID).Scan(&status)
		return err == nil && status == "in_progress"
	})
	status, answer := r.admin(p, "POST", "/hangup", "")
	if status != http.StatusAccepted {
		t.Fatalf("POST hangup = %d %v, want 202", status, answer)
	}
	if answer["calls"] != 3.0 {
		t.Errorf("calls = %v, want 3", answer["calls"])
	}
	wantHungUp(t, endOf(r.ends(talks)), true)
	wantHungUp(t, endOf(r.ends(rings)), false)
	await(t, "the inbound call ends", func() bool {
		var status, cause string
		err := r.pool.QueryRow(t.Context(), "SELECT status, hangup_cause FROM calls WHERE call_id = $1", arrived.CallID).
			Scan(&status, &cause)
		return err == nil && status == "completed" && cause == "normal_clearing"
	})
}

// Only the process that owns a SIP call can send its CANCEL or BYE. The test sends the hang-up
// request to another process.
func TestSIP_HangupEndsACallOfAnotherProcess(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, status string
		answered     bool
		script       func(*siptest.Call, string)
	}{
		{name: "ringing", status: "ringing", script: func(c *siptest.Call, _ string) {
			c.Respond(180, "")
			c.Canceled()
		}},
		{name: "the phone answers while it is canceled", status: "ringing", script: func(c *siptest.Call, answer string) {
			c.AnswerWhileCanceled(answer)
			c.Hangup()
		}},
		{name: "answered", status: "in_progress", answered: true, script: func(c *siptest.Call, answer string) {
			c.Respond(180, "")
			c.Answer(answer)
			c.Next(sipmsg.BYE).Reply(200)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "0")
			owner := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t))
			r.trunkThat(owner, "far", 1, func(c *siptest.Call) {
				session := sdp.NewSession(1, sdp.Local{Address: netip.MustParseAddr("127.0.0.1"), Port: 40000})
				answer, _, err := session.Answer(c.Invite.Body(), sdp.Both)
				if err != nil {
					t.Errorf("answer: %v", err)
					return
				}
				tt.script(c, string(answer))
			})
			id := r.request("+14155551201")
			callID := r.callOf(id, tt.status)
			other := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t), "RTP_PORT_LOW=60000", "RTP_PORT_HIGH=60100")
			// A process that has just started refuses hang-up requests until it has reconciled the
			// database.
			await(t, "the other process hangs up the call", func() bool {
				live, err := r.hangUp(other, r.workspace, callID)
				return err == nil && live
			})
			c := endOf(r.ends(id))
			if tt.name != "the phone answers while it is canceled" {
				wantHungUp(t, c, tt.answered)
				return
			}
			// The 200 and the CANCEL can cross. So the call may be completed or canceled.
			wantHungUp(t, c, c.GetStatus() == "completed")
		})
	}
}

// The process that owns a SIP call is killed after it has stored the hang-up request. The next
// process takes over the call and ends it.
func TestSIP_HangupSurvivesTheDeathOfTheOwner(t *testing.T) {
	t.Parallel()
	r, arm := newRig(t, "0"), filepath.Join(t.TempDir(), "armed")
	env := []string{"CARRIER=sip", "SIP_UDP_ADDR=" + freeAddr(t), "CRASH_FILE=" + arm}
	p := r.dialer(env...)
	r.trunkThat(p, "far", 1, func(c *siptest.Call) {
		session := sdp.NewSession(1, sdp.Local{Address: netip.MustParseAddr("127.0.0.1"), Port: 40000})
		answer, _, err := session.Answer(c.Invite.Body(), sdp.Both)
		if err != nil {
			t.Errorf("answer: %v", err)
			return
		}
		c.Respond(180, "")
		c.Answer(string(answer))
	})
	id := r.request("+14155551201")
	callID := r.callOf(id, "in_progress")
	if err := os.WriteFile(arm, []byte("dialer: after hangup request"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.hangUp(p, r.workspace, callID); err == nil {
		t.Error("hang-up was answered, want no answer")
	}
	<-p.done
	r.dialer(env...)
	wantHungUp(t, endOf(r.ends(id)), true)
}
