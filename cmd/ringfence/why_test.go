package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestCallsWhy_ExplainsARequestThatWaitsForATrunk(t *testing.T) {
	const sip, simulator = `[{"sip":{"udp":"127.0.0.1:5060"}}]`, `[{"sip":null}]`
	tests := []struct{ name, replicas, trunks, want, without string }{
		{
			name: "no trunk", replicas: sip, trunks: `[]`,
			want: "Now no SIP trunk is active: add one with `ringfence trunks add`, or enable one.",
		},
		{
			name: "the only active trunk has an open circuit", replicas: sip,
			trunks: `[{"name":"main","state":"circuit_open"},{"name":"old","state":"disabled"}]`,
			want:   "Now no SIP trunk takes calls: main is circuit_open; `ringfence trunks check NAME` shows why.",
		},
		{
			name: "a trunk accepts calls", replicas: sip, trunks: `[{"name":"main","state":"up"}]`,
			want: "the call waits for a free channel of a trunk", without: "Now no SIP trunk",
		},
		{name: "the simulated carrier", replicas: simulator, trunks: `[]`, want: "the call waits for a free channel",
			without: "Now no SIP trunk"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			routes := http.NewServeMux()
			const page = `{"data":[],"has_more":false}`
			const attempts = `{"data":[{"started_at":"2026-01-01T09:00:01Z","attempt":1,"trunk":"main","sip_status":401,
				"sip_reason":"Unauthorized","hangup_cause":"provider_auth_failed","error":null,"sip_call_id":"a@here"}],
				"has_more":false}`
			for path, body := range map[string]string{
				"workspaces/1/call-requests/2": `{"id":"2","status":"queued","scheduled_for":"2026-01-01T09:00:00Z"}`,
				"workspaces/1/decisions":       page, "workspaces/1/attempts": attempts,
				"dialer": `{"replicas":` + test.replicas + `,"agent_circuits":[],"queue":{}}`,
				"trunks": `{"data":` + test.trunks + `,"has_more":false}`,
			} {
				routes.HandleFunc("GET /admin/v1/"+path, func(w http.ResponseWriter, _ *http.Request) {
					_, _ = w.Write([]byte(body))
				})
			}
			server := httptest.NewServer(routes)
			t.Cleanup(server.Close)
			t.Setenv("RINGFENCE_ADMIN_URL", server.URL)
			t.Setenv("RINGFENCE_ADMIN_TOKEN", "a-token-of-the-test")
			t.Setenv("RINGFENCE_WORKSPACE", "1")
			code, out, faults := runCommand(t, "calls", "why", "2")
			if code != 0 {
				t.Fatalf("exit status = %d, want 0; stderr = %q", code, faults)
			}
			wantContains(t, "stdout", out, test.want)
			_, shown, _ := strings.Cut(out, "\nATTEMPTS\n")
			wantLines(t, "attempts", shown,
				"STARTED AT ATTEMPT TRUNK SIP STATUS SIP REASON HANGUP CAUSE ERROR SIP CALL ID",
				"2026-01-01 04:00:01 EST 1 main 401 Unauthorized provider_auth_failed - a@here")
			if test.without != "" {
				wantNotContains(t, "stdout", out, test.without)
			}
		})
	}
}
