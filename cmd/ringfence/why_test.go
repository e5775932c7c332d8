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
				"workspaces/1/call-requests/2": `{"id":"2","status":"queued","agent_id":"7",
					"scheduled_for":"2026-01-01T09:00:00Z"}`,
				"workspaces/1/decisions": page, "workspaces/1/attempts": attempts,
				"workspaces/1/webhook-subscriptions": page,
				"dialing":                            `{"state":"active"}`, "workspaces/1/dialing": `{"state":"active"}`,
				"workspaces/1/agents/7/dialing": `{"state":"active"}`,
				"dialer":                        `{"replicas":` + test.replicas + `,"agent_circuits":[],"queue":{}}`,
				"trunks":                        `{"data":` + test.trunks + `,"has_more":false}`,
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

// adminRoutes serves fixed responses below /admin/v1 and configures the CLI to use them.
func adminRoutes(t *testing.T, bodies map[string]string) {
	t.Helper()
	routes := http.NewServeMux()
	for path, body := range bodies {
		routes.HandleFunc(
			"GET /admin/v1/"+path,
			func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) },
		)
	}
	routes.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"error":{"code":"not_found","message":"No such thing."}}`))
	})
	server := httptest.NewServer(routes)
	t.Cleanup(server.Close)
	t.Setenv("RINGFENCE_ADMIN_URL", server.URL)
	t.Setenv("RINGFENCE_ADMIN_TOKEN", "a-token-of-the-test")
	t.Setenv("RINGFENCE_WORKSPACE", "1")
}

const (
	emptyPage    = `{"data":[],"has_more":false}`
	decisionPage = `{"data":[{"id":"9","judged_at":"2026-01-01T09:00:00.000Z","kind":"dial","result":"open",
		"rule":null,
		"message":null,"gates":[{"gate":"opt_out","result":"passed","checked":"x","reason":"no opt-out on record"},
		{"gate":"calling_window","result":"passed","checked":"x","reason":"02:45 in Los Angeles, window 00:00–24:00"}]},
		{"id":"8","judged_at":"2026-01-01T08:00:00.000Z","kind":"precheck","result":"open","rule":null,"message":null,
		"gates":[]}],
		"has_more":false}`
)

func wantGates(t *testing.T, out string) {
	t.Helper()
	_, shown, _ := strings.Cut(out, "\nGATES\n")
	shown, _, _ = strings.Cut(shown, "\n\n")
	wantLines(t, "gates", shown, "JUDGED AT KIND GATE RESULT REASON",
		"2026-01-01 04:00:00 EST dial opt_out passed no opt-out on record",
		"2026-01-01 04:00:00 EST dial calling_window passed 02:45 in Los Angeles, window 00:00–24:00")
}

func TestCallsWhy_CallIDExplainsTheRequestOfTheCall(t *testing.T) {
	adminRoutes(t, map[string]string{
		"workspaces/1/calls/3": `{"call_id":"3","call_request_id":"2","status":"completed",
			"hangup_cause":"normal_clearing"}`,
		"workspaces/1/call-requests/2": `{"id":"2","status":"completed","call_id":"3",
			"scheduled_for":"2026-01-01T09:00:00Z"}`,
		"workspaces/1/decisions":             decisionPage,
		"workspaces/1/attempts":              emptyPage,
		"workspaces/1/webhook-subscriptions": emptyPage,
	})
	code, out, faults := runCommand(t, "calls", "why", "3")
	if code != 0 {
		t.Fatalf("exit status = %d, want 0; stderr = %q", code, faults)
	}
	wantContains(t, "stdout", out, "The number was called. The call ended completed, normal_clearing.")
	wantGates(t, out)
}

func TestCallsWhy_InboundCallHasNoDecision(t *testing.T) {
	adminRoutes(t, map[string]string{
		"workspaces/1/calls/3": `{"call_id":"3","call_request_id":null,"status":"completed",
			"hangup_cause":"normal_clearing"}`,
		"workspaces/1/attempts":              emptyPage,
		"workspaces/1/webhook-subscriptions": emptyPage,
	})
	code, out, faults := runCommand(t, "calls", "why", "3")
	if code != 0 {
		t.Fatalf("exit status = %d, want 0; stderr = %q", code, faults)
	}
	wantContains(t, "stdout", out, "The call is inbound: it has no call request and no compliance decision.")
	wantNotContains(t, "stdout", out, "DECISIONS")
}

func TestCallsWhy_NumberShowsItsGatesAndDecisions(t *testing.T) {
	adminRoutes(t, map[string]string{
		"workspaces/1/contacts/{phone}/preview": `{"may_be_called":false,"message":"Outside the calling window.",
			"next_at":"2026-01-01T17:00:00.000Z",
			"gates":[{"gate":"opt_out","result":"passed","checked":"x","reason":"no opt-out on record"}]}`,
		"workspaces/1/decisions":     decisionPage,
		"workspaces/1/call-requests": emptyPage,
	})
	code, out, faults := runCommand(t, "calls", "why", "+14155550100")
	if code != 0 {
		t.Fatalf("exit status = %d, want 0; stderr = %q", code, faults)
	}
	wantContains(
		t,
		"stdout",
		out,
		"The number cannot be called now. It can be called at 2026-01-01 12:00:00 EST. Outside the calling window.",
	)
	_, now, _ := strings.Cut(out, "\nGATES NOW\n")
	now, _, _ = strings.Cut(now, "\n\n")
	wantLines(t, "gates now", now, "GATE RESULT REASON", "opt_out passed no opt-out on record")
	wantNotContains(t, "stdout", out, "NEWEST CALL REQUEST")
	wantGates(t, out)
}

// The call request is due. The whole deployment, the request's agent and a trunk are paused. A
// pause of the workspace has ended.
func TestCallsWhy_NamesThePauses(t *testing.T) {
	const pause = `"state":"paused","reason":"Wrong script.","until":null,"set_at":"2026-01-01T08:00:00.000Z",
		"set_by":{"type":"operator","id":"1","name":"eve"}`
	adminRoutes(t, map[string]string{
		"workspaces/1/call-requests/2": `{"id":"2","status":"queued","agent_id":"7",
			"scheduled_for":"2026-01-01T09:00:00Z"}`,
		"workspaces/1/decisions": emptyPage, "workspaces/1/attempts": emptyPage,
		"workspaces/1/webhook-subscriptions": emptyPage,
		"dialer": `{"replicas":[],"agent_circuits":[],"queue":{},"pauses":[{"level":"trunk","id":"5",` + pause + `},
			{"level":"workspace","id":"9",` + pause + `}]}`,
		"trunks":                        emptyPage,
		"dialing":                       `{` + pause + `}`,
		"workspaces/1/dialing":          `{"state":"active","reason":"Ended."}`,
		"workspaces/1/agents/7/dialing": `{` + pause + `}`,
	})
	code, out, faults := runCommand(t, "calls", "why", "2")
	if code != 0 {
		t.Fatalf("exit status = %d, want 0; stderr = %q", code, faults)
	}
	for _, scope := range []string{"everything", "agent 7", "trunk 5"} {
		wantContains(t, "stdout", out, "Dialing is paused: "+scope+", by eve at 2026-01-01T08:00:00Z: Wrong script.")
	}
	wantNotContains(t, "stdout", out, "paused: workspace")
}

func TestCallsWhy_ShowsTheDeliveriesOfTheRequest(t *testing.T) {
	adminRoutes(t, map[string]string{
		"workspaces/1/call-requests/2": `{"id":"2","status":"canceled","scheduled_for":"2026-01-01T09:00:00Z"}`,
		"workspaces/1/decisions":       emptyPage, "workspaces/1/attempts": emptyPage,
		"workspaces/1/webhook-subscriptions": `{"data":[{"id":"3"}],"has_more":false}`,
		"workspaces/1/webhook-subscriptions/3/deliveries": `{"data":[{"id":"4","event_type":"call_request.canceled",
			"status":"delivered","attempts":1,"last_code":200}],"has_more":false}`,
	})
	code, out, faults := runCommand(t, "calls", "why", "2")
	if code != 0 {
		t.Fatalf("exit status = %d, want 0; stderr = %q", code, faults)
	}
	_, shown, _ := strings.Cut(out, "\nDELIVERIES\n")
	wantContains(t, "deliveries", shown, "call_request.canceled")
}

func TestCallsWhy_UnknownIDFails(t *testing.T) {
	adminRoutes(t, nil)
	code, _, faults := runCommand(t, "calls", "why", "3")
	if code == 0 {
		t.Error("exit status = 0, want an error")
	}
	wantContains(t, "stderr", faults, "No such thing.")
}

func TestCallsTimeline_PrintsTheEntries(t *testing.T) {
	adminRoutes(t, map[string]string{
		"workspaces/1/call-requests/2/timeline": `{"call_request_id":"2","data":[{"at":"2026-01-01T09:00:00.000Z",
			"type":"call_request.created","message":"The call request was created.","object_id":"2","details":{}}]}`,
	})
	code, out, faults := runCommand(t, "calls", "timeline", "2")
	if code != 0 {
		t.Fatalf("exit status = %d, want 0; stderr = %q", code, faults)
	}
	wantLines(t, "timeline", out, "AT TYPE MESSAGE OBJECT ID",
		"2026-01-01 04:00:00 EST call_request.created The call request was created. 2")
}
