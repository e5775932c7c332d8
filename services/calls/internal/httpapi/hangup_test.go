package httpapi_test

import (
	"testing"

	"connectrpc.com/connect"

	"ringfence.dev/proto/dialerv1"
)

type hangupFunc = func(*dialerv1.RequestHangupRequest) (*dialerv1.RequestHangupResponse, error)

func TestHangup_OnlyALiveCallIsHungUp(t *testing.T) {
	t.Parallel()
	live := func(is bool) hangupFunc {
		return func(*dialerv1.RequestHangupRequest) (*dialerv1.RequestHangupResponse, error) {
			return &dialerv1.RequestHangupResponse{Live: is}, nil
		}
	}
	silent := func(*dialerv1.RequestHangupRequest) (*dialerv1.RequestHangupResponse, error) {
		return nil, connect.NewError(connect.CodeUnavailable, nil)
	}
	rings := func(a *account) { a.publish(a.fenced(), a.dialing(), a.ringing()) }
	tests := []struct {
		name       string
		before     func(*account)
		hangup     hangupFunc
		wantStatus int
		wantCode   string
		wantAsked  bool
	}{
		{name: "ringing", before: rings, hangup: live(true), wantStatus: 202, wantAsked: true},
		{name: "in progress", before: func(a *account) { rings(a); a.publish(a.answered()) }, hangup: live(true),
			wantStatus: 202, wantAsked: true},
		{name: "ended, but its event has not arrived", before: rings, hangup: live(false), wantStatus: 409,
			wantCode: "invalid_state", wantAsked: true},
		{name: "ended", before: func(a *account) { rings(a); a.publish(a.ended("busy", "user_busy")) },
			hangup: live(true), wantStatus: 409, wantCode: "invalid_state"},
		{name: "the dialer does not respond", before: rings, hangup: silent, wantStatus: 503, wantCode: "unavailable",
			wantAsked: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			a := r.account(r.place())
			tt.before(a)
			var asked *dialerv1.RequestHangupRequest
			r.peers.set(func(p *fakePeers) {
				p.hangup = func(request *dialerv1.RequestHangupRequest) (*dialerv1.RequestHangupResponse, error) {
					asked = request
					return tt.hangup(request)
				}
			})
			for _, path := range []string{"/v1/calls/", "/admin/v1/workspaces/" + r.workspace.String() + "/calls/"} {
				got := r.do("POST", path+a.id()+"/hangup", nil)
				if got.status != tt.wantStatus {
					t.Errorf("POST %s = %d %v, want %d", path, got.status, got.body, tt.wantStatus)
				} else if got.code() != tt.wantCode {
					t.Errorf("POST %s: code = %q, want %q", path, got.code(), tt.wantCode)
				}
				if got.status == 202 && got.body["call_id"] != a.id() {
					t.Errorf("POST %s: call_id = %v, want %s", path, got.body["call_id"], a.id())
				}
			}
			if got := asked != nil; got != tt.wantAsked {
				t.Fatalf("the dialer received a request = %t, want %t", got, tt.wantAsked)
			}
			if asked != nil && (asked.GetCallId() != a.id() || asked.GetWorkspaceId() != r.workspace.String()) {
				t.Errorf("request to the dialer = %v, want the call and its workspace", asked)
			}
			if got := r.doAs(newID(t), "POST", "/v1/calls/"+a.id()+"/hangup", nil); got.status != 404 {
				t.Errorf("hang-up by another workspace = %d, want 404", got.status)
			}
		})
	}
}
