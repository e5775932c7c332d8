package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAgentsList_ShowsWhenModelsRetire(t *testing.T) {
	admin(t, http.StatusOK)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"data":[
			{"id":"1","name":"Ada","kind":"openai_realtime","model":"gpt-realtime","retiring_models":[
				{"model":"gpt-realtime","retires_on":"2027-01-20","successor":"gpt-realtime-2.1"}]},
			{"id":"2","name":"Bo","kind":"scripted"}],"has_more":false}`)
	}))
	t.Cleanup(server.Close)
	t.Setenv("RINGFENCE_ADMIN_URL", server.URL)
	code, out, faults := runCommand(t, "agents", "list")
	if code != 0 {
		t.Fatalf("agents list = %d %s, want 0", code, faults)
	}
	lines := strings.Split(out, "\n")
	if len(lines) < 3 {
		t.Fatalf("lines = %d, want a heading and two agents: %s", len(lines), out)
	}
	tests := []struct{ name, line, want string }{
		{name: "heading", line: lines[0], want: "RETIRES"},
		{name: "model", line: lines[1], want: "gpt-realtime"},
		{name: "retirement", line: lines[1], want: "2027-01-20"},
	}
	for _, tt := range tests {
		if !strings.Contains(tt.line, tt.want) {
			t.Errorf("%s: line %q does not contain %q", tt.name, tt.line, tt.want)
		}
	}
	if strings.Contains(lines[2], "2027") {
		t.Errorf("line of an agent without a retiring model = %q, want no date", lines[2])
	}
}

func TestAgents_CommandsPrintARemarkForAnExperimentalKind(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want bool
	}{
		{name: "add", args: []string{"agents", "add", "Ida", "--set", "kind=openai_live"}, want: true},
		{name: "change", args: []string{"agents", "change", "7", "--set", "kind=openai_live"}, want: true},
		{name: "another kind", args: []string{"agents", "add", "Ida", "--set", "kind=openai_realtime"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			admin(t, http.StatusOK)
			code, _, remarks := runCommand(t, tt.args...)
			if code != 0 {
				t.Fatalf("%v = %d %s, want 0", tt.args, code, remarks)
			}
			if got := strings.Contains(remarks, "experimental"); got != tt.want {
				t.Errorf("%v remarked %q, experimental = %v, want %v", tt.args, remarks, got, tt.want)
			}
		})
	}
}
