package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

func trunkDesk(t *testing.T, check string) {
	t.Helper()
	routes := http.NewServeMux()
	routes.HandleFunc("GET /admin/v1/trunks", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"data":[{"id":"7","name":"Main"}],"has_more":false}`))
	})
	echo := func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, `{"id":"7","name":%q}`, r.Method)
	}
	routes.HandleFunc("GET /admin/v1/trunks/7", echo)
	routes.HandleFunc("PATCH /admin/v1/trunks/7", echo)
	routes.HandleFunc("DELETE /admin/v1/trunks/7", echo)
	routes.HandleFunc("POST /admin/v1/trunks/7/check", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(check))
	})
	server := httptest.NewServer(routes)
	t.Cleanup(server.Close)
	t.Setenv("RINGFENCE_ADMIN_URL", server.URL)
	t.Setenv("RINGFENCE_ADMIN_TOKEN", "a-token-of-the-test")
}

const (
	goodCheck = `{"name":"Main","ok":true,"steps":[{"step":"dns","result":"ok","seen":"192.0.2.1","remedy":null}]}`
	badCheck  = `{"name":"Main","ok":false,"steps":[
		{"step":"dns","result":"ok","seen":"192.0.2.1","remedy":null},
		{"step":"options","result":"failed","seen":"no answer","remedy":"Check the firewall."}]}`
)

// The exit status is 1 if a step failed.
func TestTrunksCheck_PrintsEachStep(t *testing.T) {
	tests := []struct {
		name, trunk, check string
		code               int
		out, faults        string
	}{
		{name: "every step succeeds", trunk: "main", check: goodCheck, out: "Trunk Main\ndns        ok       192.0.2.1\n"},
		{
			name: "a step fails", trunk: "7", check: badCheck, code: 1,
			out: "Trunk Main\ndns        ok       192.0.2.1\n" +
				"options    failed   no answer\n           remedy   Check the firewall.\n",
			faults: "trunk Main: the step options failed",
		},
		{name: "an unknown trunk", trunk: "other", check: goodCheck, code: 1, faults: `no trunk has the name "other"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			trunkDesk(t, tt.check)
			code, out, faults := runCommand(t, "trunks", "check", tt.trunk)
			wantCode(t, tt.name, code, tt.code)
			wantText(t, "stdout", out, tt.out)
			wantContains(t, "stderr", faults, tt.faults)
			code, out, _ = runCommand(t, "trunks", "check", tt.trunk, "-o", "json")
			wantCode(t, tt.name+" -o json", code, tt.code)
			if tt.out != "" && !json.Valid([]byte(out)) {
				t.Errorf("stdout with -o json = %q, want JSON", out)
			}
		})
	}
}

func TestTrunksList_PrintsADashForAMissingValue(t *testing.T) {
	admin(t, http.StatusOK)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"data":[
			{"id":"7","name":"Main","state":"up","host":"sip.example.net","transport":"udp","registered":true,
				"last_answer":{"status":200,"at":"2026-01-01T09:00:01Z","round_trip_ms":3},"channels_in_use":2,"channels":30,
				"recent":{"calls":8,"failures":2,"error_rate":0.25}},
			{"id":"8","name":"Spare","state":"down","host":"192.0.2.1","transport":"tls","registered":null,
				"last_answer":null,"channels_in_use":0,"channels":10,"recent":{"calls":0,"failures":0,"error_rate":0}}
			],"has_more":false}`))
	}))
	t.Cleanup(server.Close)
	t.Setenv("RINGFENCE_ADMIN_URL", server.URL)
	code, out, faults := runCommand(t, "trunks", "list")
	if code != 0 {
		t.Fatalf("exit status = %d, want 0; stderr = %q", code, faults)
	}
	wantLines(t, "trunks", out,
		"ID NAME STATE HOST TRANSPORT REGISTERED ANSWER ANSWERED AT IN USE CHANNELS CALLS FAILURES ERROR RATE",
		"7 Main up sip.example.net udp true 200 2026-01-01 04:00:01 EST 2 30 8 2 0.25",
		"8 Spare down 192.0.2.1 tls - - - 0 10 0 0 0")
}

func TestTrunks_CommandsAcceptANameOrAnID(t *testing.T) {
	trunkDesk(t, goodCheck)
	for _, row := range []struct {
		command, method string
		flags           []string
	}{
		{command: "show", method: http.MethodGet},
		{command: "change", method: http.MethodPatch, flags: []string{"--set", "channels=100"}},
		{command: "remove", method: http.MethodDelete, flags: []string{"--yes"}},
	} {
		for _, trunk := range []string{"main", "7"} {
			code, out, _ := runCommand(t, append([]string{"trunks", row.command, trunk}, row.flags...)...)
			wantCode(t, row.command+" "+trunk, code, 0)
			wantContains(t, row.command+" "+trunk, out, row.method)
		}
		code, _, faults := runCommand(t, append([]string{"trunks", row.command, "other"}, row.flags...)...)
		wantCode(t, row.command+" other", code, 1)
		wantContains(t, row.command+" other", faults, `no trunk has the name "other"`)
	}
}
