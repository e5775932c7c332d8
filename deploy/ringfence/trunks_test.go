package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

// trunkDesk is an /admin/v1 with one trunk.
func trunkDesk(t *testing.T, check string) {
	t.Helper()
	routes := http.NewServeMux()
	routes.HandleFunc("GET /admin/v1/trunks", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"data":[{"id":"7","name":"Main"}],"has_more":false}`))
	})
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

// The check prints each step, and its exit status says whether one failed.
func TestTrunksCheck(t *testing.T) {
	tests := []struct {
		name, trunk, check string
		code               int
		out, faults        string
	}{
		{name: "good", trunk: "main", check: goodCheck, out: "Trunk Main\ndns        ok       192.0.2.1\n"},
		{
			name: "failed", trunk: "7", check: badCheck, code: 1,
			out: "Trunk Main\ndns        ok       192.0.2.1\n" +
				"options    failed   no answer\n           remedy   Check the firewall.\n",
			faults: "trunk Main: the step options failed",
		},
		{name: "no such trunk", trunk: "other", check: goodCheck, code: 1, faults: `no trunk is called "other"`},
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
