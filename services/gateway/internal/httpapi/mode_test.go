package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// mode returns the mode of a workspace, as the operator API shows it.
func (r *rig) mode(id string) string {
	r.t.Helper()
	var found struct{ Mode string }
	if err := json.Unmarshal([]byte(r.operator("GET", "/admin/v1/workspaces/"+id, "").body), &found); err != nil {
		r.t.Fatal(err)
	}
	return found.Mode
}

func TestMode_IsSetAtCreationAndCannotChange(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	live, test := r.workspace(""), r.workspace(`"mode":"test"`)
	for id, want := range map[string]string{live: "live", test: "test"} {
		if got := r.mode(id); got != want {
			t.Errorf("mode = %q, want %q", got, want)
		}
	}
	tests := []struct {
		name, id, body string
		want           int
	}{
		{name: "live to test", id: live, body: `{"mode":"test"}`, want: http.StatusUnprocessableEntity},
		{name: "test to live", id: test, body: `{"mode":"live"}`, want: http.StatusUnprocessableEntity},
		{name: "test to the default", id: test, body: `{"mode":null}`, want: http.StatusUnprocessableEntity},
		{name: "the same mode", id: test, body: `{"mode":"test","name":"Beta"}`, want: http.StatusOK},
	}
	for _, tt := range tests {
		got := r.operator("PATCH", "/admin/v1/workspaces/"+tt.id, tt.body)
		if got.status != tt.want {
			t.Errorf("%s: status = %d, want %d: %s", tt.name, got.status, tt.want, got.body)
		}
	}
	if got := r.mode(live) + " " + r.mode(test); got != "live test" {
		t.Errorf("modes after the changes = %q, want \"live test\"", got)
	}
	unknown := r.operator("POST", "/admin/v1/workspaces", `{"name":"x","plan":"growth","currency":"USD","mode":"trial"}`)
	if unknown.status != http.StatusUnprocessableEntity || !strings.Contains(unknown.body, "mode") {
		t.Errorf("POST with an unknown mode = %d %s, want 422 that names mode", unknown.status, unknown.body)
	}
}

func TestMode_KeyOfTestWorkspaceBeginsWithRfTest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.workspace(`"mode":"test"`)
	key, _ := r.key(id, "read")
	if !strings.HasPrefix(key, "rf_test_") {
		t.Errorf("key = %q, want it to begin with rf_test_", key)
	}
	if got := r.customer("GET", "/v1/calls", key, ""); got.status != http.StatusOK {
		t.Errorf("GET /v1/calls with the key = %d, want 200", got.status)
	}
	forged := "rf_live_" + strings.TrimPrefix(key, "rf_test_")
	if got := r.customer("GET", "/v1/calls", forged, ""); got.status != http.StatusUnauthorized {
		t.Errorf("GET /v1/calls with the prefix of live workspaces = %d, want 401", got.status)
	}
}

// Earlier versions of the services park a message without the field `workspace`. So they never take
// a test workspace for a live one.
func TestMode_EarlierServicesCannotReadATestWorkspace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.workspace(`"mode":"test"`)
	if got := r.operator("PATCH", "/admin/v1/workspaces/"+id, `{"name":"Beta"}`); got.status != http.StatusOK {
		t.Fatalf("PATCH = %d %s", got.status, got.body)
	}
	events := r.events()
	if len(events) != 2 {
		t.Fatalf("events = %d, want 2", len(events))
	}
	for _, event := range events {
		if event.GetWorkspace() != nil {
			t.Errorf("version %d: workspace = %v, want nil", event.GetVersion(), event.GetWorkspace())
		}
		if event.GetTestWorkspace().GetCurrency() != "USD" {
			t.Errorf("version %d: test_workspace = %v, want the settings", event.GetVersion(), event.GetTestWorkspace())
		}
	}
}

// A gateway of an earlier version would publish a test workspace as a live workspace. Therefore the
// database must refuse the gateway's UPDATE.
func TestMode_EarlierGatewayCannotChangeATestWorkspace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	live, test := r.workspace(""), r.workspace(`"mode":"test"`)
	const change = `UPDATE workspaces SET name = 'old', version = version + 1 WHERE id = $1`
	if _, err := r.pool.Exec(t.Context(), change, test); err == nil {
		t.Error("change of a test workspace = nil, want a violation of the constraint")
	}
	if _, err := r.pool.Exec(t.Context(), change, live); err != nil {
		t.Errorf("change of a live workspace = %v, want nil", err)
	}
}
