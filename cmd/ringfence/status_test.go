package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// The exit status is 1 if a service, a trunk, or a model that the operator configured is down.
func TestStatus_PrintsWhatIsDown(t *testing.T) {
	const queue = `"queue":{"due":12,"scheduled":3,"oldest_due_seconds":90.4,"live_outbound":4,"live_inbound":1}`
	tests := []struct {
		name, services, trunks, dialer string
		workspaces                     string // by default, no workspace exists
		parked                         string // by default, no record is parked
		code                           int
		out, faults                    string
	}{
		{
			name: "nothing is down", services: `[{"name":"calls","ready":true}]`, dialer: `"agent_circuits":[],` + queue,
			trunks: `[{"id":"7","name":"main","state":"up","channels_in_use":2,"channels":10,"recent":{"calls":5,"failures":1}},
				{"id":"8","name":"new","state":"unknown","channels":10},{"id":"9","name":"old","state":"disabled","channels":10}]`,
			out: "service   ready         calls\n" +
				"trunk     up            main, 2 of 10 channels in use, 1 of 5 calls failed in five minutes\n" +
				"trunk     unknown       new, 0 of 10 channels in use, 0 of 0 calls failed in five minutes\n" +
				"trunk     disabled      old, 0 of 10 channels in use, 0 of 0 calls failed in five minutes\n" +
				"queue     12 due        oldest 1m30s, 3 scheduled, 4 outbound and 1 inbound calls live\n",
		},
		{
			name: "several components are down", services: `[{"name":"dialer","ready":false}]`, code: 1,
			dialer: `"agent_circuits":[{"replica":"a","kind":"openai_realtime","workspace_id":null}],` + queue,
			trunks: `[{"id":"7","name":"main","state":"mixed","channels":10}]`,
			out: "service   not ready     dialer\n" +
				"trunk     mixed         main, 0 of 10 channels in use, 0 of 0 calls failed in five minutes\n" +
				"model     circuit_open  openai_realtime of the operator, at replica a\n" +
				"queue     12 due        oldest 1m30s, 3 scheduled, 4 outbound and 1 inbound calls live\n",
			faults: "down: service dialer, trunk main, model openai_realtime of the operator",
		},
		{
			name: "a model of a workspace is down", services: `[{"name":"dialer","ready":true}]`, trunks: "[]",
			dialer: `"agent_circuits":[{"replica":"a","kind":"openai_realtime","workspace_id":"7"}],` + queue,
			out: "service   ready         dialer\n" +
				"model     circuit_open  openai_realtime of workspace 7, at replica a\n" +
				"queue     12 due        oldest 1m30s, 3 scheduled, 4 outbound and 1 inbound calls live\n",
		},
		{
			name: "no trunk is active", services: `[{"name":"dialer","ready":true}]`, code: 1,
			dialer: `"replicas":[{"sip":{"udp":"127.0.0.1:5060"}}],"agent_circuits":[],` + queue,
			trunks: `[{"id":"7","name":"main","state":"disabled","channels":10}]`,
			out: "service   ready         dialer\n" +
				"trunk     disabled      main, 0 of 10 channels in use, 0 of 0 calls failed in five minutes\n" +
				"trunk     none          no SIP trunk is active: add one with `ringfence trunks add`, or enable one\n" +
				"queue     12 due        oldest 1m30s, 3 scheduled, 4 outbound and 1 inbound calls live\n",
			faults: "down: no active trunk",
		},
		{
			name: "records are parked", services: `[{"name":"calls","ready":true}]`, trunks: "[]",
			dialer: `"agent_circuits":[],` + queue,
			parked: `{"service":"calls","topic":"dial-events.v1","parked_at":"2026-06-04T09:00:00.000Z"},
				{"service":"calls","topic":"dial-events.v1","parked_at":"2026-06-04T08:00:00.000Z"}`,
			out: "service   ready         calls\n" +
				"records   2 parked      dial-events.v1 of calls, since 2026-06-04T08:00:00Z, " +
				"`ringfence services parked calls` lists them\n" +
				"queue     12 due        oldest 1m30s, 3 scheduled, 4 outbound and 1 inbound calls live\n",
		},
		{
			name: "customers need attention, and two versions run", dialer: `"agent_circuits":[],` + queue, trunks: "[]",
			services: `[{"name":"calls","ready":true,"versions":["1.1.0","1.2.0"]}]`,
			workspaces: `{"id":"1","name":"Acme","status":"active"},{"id":"2","name":"Best","status":"active"},` +
				`{"id":"3","name":"Suspended","status":"suspended"}`,
			out: "service   ready         calls, version 1.1.0 and 1.2.0\n" +
				"queue     12 due        oldest 1m30s, 3 scheduled, 4 outbound and 1 inbound calls live\n" +
				"wallet    empty         Acme has 0 EUR to spend, `ringfence -w 1 wallet top-up` adds credit\n" +
				"webhook   failing       https://a.example of Acme, 7 failures in a row, last error: status 500\n" +
				"webhook   failed        https://c.example of Acme, 40 failures in a row, last error: unknown\n" +
				"webhook   waiting       https://b.example of Acme, 3 or more deliveries wait, " +
				"one of them since 2026-06-04T08:00:00Z\n" +
				"erasure   open          8 of Best, since 2026-06-04T09:00:00Z, waits for calls and dialer\n",
		},
		{
			name: "dialing is paused", services: `[{"name":"dialer","ready":true}]`, trunks: "[]",
			dialer: `"agent_circuits":[],"pauses":[{"level":"everything","id":null,"state":"paused","reason":"Wrong script",
				"until":"2026-06-04T10:00:00.000Z","set_by":{"type":"operator","id":null,"name":"ops"},
				"set_at":"2026-06-04T09:00:00.000Z"},{"level":"workspace","id":"7","state":"paused","reason":"Too many complaints",
				"until":null,"set_by":{"type":"api_key","id":"8","name":null},"set_at":"2026-06-04T09:00:00.000Z"}],
				"queue":{"due":0,"paused":40,"scheduled":3,"oldest_due_seconds":0,"live_outbound":0,"live_inbound":0}`,
			out: "service   ready         dialer\n" +
				"dialing   paused        everything, by ops at 2026-06-04T09:00:00Z: Wrong script, until 2026-06-04T10:00:00Z\n" +
				"dialing   paused        workspace 7, by API key 8 at 2026-06-04T09:00:00Z: Too many complaints\n" +
				"queue     0 due         oldest 0s, 3 scheduled, 0 outbound and 0 inbound calls live\n" +
				"queue     40 paused     due, but dialing is paused\n",
		},
		{
			name: "the dialer does not respond", services: `[{"name":"dialer","ready":false}]`, dialer: "no JSON",
			trunks: "[]", code: 1, faults: "down: service dialer, dialer",
			out: "service   not ready     dialer\n" +
				"dialer    no answer     GET /admin/v1/dialer returned 200, which is not a response of the gateway: " +
				"check that RINGFENCE_ADMIN_URL is the admin address\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			routes := http.NewServeMux()
			for path, body := range map[string]string{
				"services": `{"services":` + tt.services + `}`, "dialer": `{` + tt.dialer + `}`,
				"trunks":              `{"data":` + tt.trunks + `,"has_more":false}`,
				"parked-records":      `{"data":[` + tt.parked + `],"has_more":false,"unavailable":[]}`,
				"workspaces":          `{"data":[` + tt.workspaces + `],"has_more":false}`,
				"workspaces/1/wallet": `{"balance":0.5,"held":0.5,"spendable":0,"currency":"EUR"}`,
				"workspaces/2/wallet": `{"balance":2,"held":0.5,"spendable":1.5,"currency":"USD"}`,
				"workspaces/1/webhook-subscriptions": `{"data":[
					{"id":"3","url":"https://a.example","status":"active","consecutive_failures":7,"last_error":"status 500"},
					{"id":"4","url":"https://b.example","status":"paused","consecutive_failures":9,"last_error":"status 500"},
					{"id":"5","url":"https://c.example","status":"failed","consecutive_failures":40,"last_error":null}
					],"has_more":false}`,
				"workspaces/2/webhook-subscriptions": `{"data":[
					{"id":"6","url":"https://d.example","status":"active","consecutive_failures":0,"last_error":null}
					],"has_more":false}`,
				"workspaces/1/erasures": `{"data":[{"id":"7","requested_at":"2026-06-04T09:00:00.000Z",
					"done_at":"2026-06-04T09:00:01.000Z","services":[]}],"has_more":false}`,
				"workspaces/2/erasures": `{"data":[{"id":"8","requested_at":"2026-06-04T09:00:00.000Z","done_at":null,"services":[
					{"service":"calls","open":1},{"service":"webhook-dispatcher","open":0},{"service":"dialer","open":2}
					]}],"has_more":false}`,
			} {
				routes.HandleFunc("GET /admin/v1/"+path, func(w http.ResponseWriter, _ *http.Request) {
					_, _ = w.Write([]byte(body))
				})
			}
			routes.HandleFunc("GET /admin/v1/workspaces/{id}/webhook-subscriptions/{subscription}/deliveries",
				func(w http.ResponseWriter, r *http.Request) {
					body := `{"data":[],"has_more":false}`
					switch r.PathValue("subscription") + " " + r.URL.Query().Get("status") {
					case "4 held":
						body = `{"data":[{"created_at":"2026-06-04T09:00:00.000Z"},{"created_at":"2026-06-04T08:00:00.000Z"}],
							"has_more":true}`
					case "4 queued":
						body = `{"data":[{"created_at":"2026-06-04T08:30:00.000Z"}],"has_more":false}`
					case "6 queued": // the delivery has waited for less than a minute
						body = `{"data":[{"created_at":"` + time.Now().UTC().Format("2006-01-02T15:04:05.000Z") + `"}],"has_more":false}`
					}
					_, _ = w.Write([]byte(body))
				})
			server := httptest.NewServer(routes)
			t.Cleanup(server.Close)
			t.Setenv("RINGFENCE_ADMIN_URL", server.URL)
			t.Setenv("RINGFENCE_ADMIN_TOKEN", "a-token-of-the-test")
			code, out, faults := runCommand(t, "status")
			wantCode(t, "status", code, tt.code)
			wantText(t, "stdout", out, tt.out)
			wantContains(t, "stderr", faults, tt.faults)
			if _, out, _ = runCommand(t, "status", "--short"); strings.Contains(out, "Acme") {
				t.Errorf("stdout of --short = %q, want it without workspaces", out)
			}
			code, out, _ = runCommand(t, "status", "-o", "json")
			wantCode(t, "status -o json", code, tt.code)
			if !json.Valid([]byte(out)) {
				t.Errorf("stdout with -o json = %q, want JSON", out)
			}
		})
	}
	t.Run("hostile text", func(t *testing.T) {
		admin(t, http.StatusOK)
		_, out, faults := runCommand(t, "status")
		wantNoControls(t, out+faults)
	})
}
