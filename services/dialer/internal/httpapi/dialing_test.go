package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit"
)

func TestDialing_EachScopeHasItsOwnState(t *testing.T) {
	t.Parallel()
	o := open(t)
	workspace := "/admin/v1/workspaces/" + o.workspace.String()
	_, trunk, _ := o.sendOperator(t, http.MethodPost, lines, wholeTrunk)
	paths := []string{
		"/admin/v1/dialing", workspace + "/dialing", workspace + "/agents/" + o.agent.String() + "/dialing",
		lines + "/" + trunk["id"].(string) + "/dialing",
	}
	for i, path := range paths {
		for j, other := range paths {
			want := "active"
			if j < i {
				want = "paused"
			}
			if status, state, body := o.sendOperator(t, http.MethodGet, other, ""); status != 200 || state["state"] != want {
				t.Errorf("GET %s = %d %s, want state %s", other, status, body, want)
			}
		}
		until := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
		encoded, _ := json.Marshal(map[string]any{"state": "paused", "reason": " Wrong script ", "until": until})
		status, state, body := o.sendOperator(t, http.MethodPut, path, string(encoded))
		if status != http.StatusOK {
			t.Fatalf("PUT %s = %d %s, want 200", path, status, body)
		}
		for name, want := range map[string]any{
			"state": "paused", "reason": "Wrong script", "until": until.Format("2006-01-02T15:04:05.000Z07:00"),
		} {
			if state[name] != want {
				t.Errorf("PUT %s: %s = %v, want %v", path, name, state[name], want)
			}
		}
		actor, _ := state["set_by"].(map[string]any)
		if actor["type"] != "operator" || actor["name"] != "ann" || actor["id"] != nil {
			t.Errorf("PUT %s: set_by = %v, want the operator ann", path, actor)
		}
		if _, read, again := o.sendOperator(t, http.MethodGet, path, ""); again != body {
			t.Errorf("GET %s = %v, want the response to PUT %s", path, read, body)
		}
	}
	_, dialer, _ := o.sendOperator(t, http.MethodGet, "/admin/v1/dialer", "")
	pauses, _ := dialer["pauses"].([]any)
	if got := len(pauses); got != len(paths) {
		t.Errorf("pauses of GET /admin/v1/dialer = %d, want %d", got, len(paths))
	}
	checkWorkspaces(t, pauses, o.workspace.String())
	for _, path := range paths {
		// A resume ignores `until`.
		const resume = `{"state":"active","until":"2020-01-01T00:00:00Z"}`
		if status, state, body := o.sendOperator(t, http.MethodPut, path, resume); status != 200 ||
			state["state"] != "active" || state["until"] != nil {
			t.Errorf("PUT %s = %d %s, want state active", path, status, body)
		}
	}
}

// checkWorkspaces checks that a pause names a workspace only if a workspace or an agent is paused.
func checkWorkspaces(t *testing.T, pauses []any, workspace string) {
	t.Helper()
	for _, item := range pauses {
		pause, _ := item.(map[string]any)
		var want any
		if pause["level"] == "workspace" || pause["level"] == "agent" {
			want = workspace
		}
		if pause["workspace_id"] != want {
			t.Errorf("workspace_id of the pause %v = %v, want %v", pause["level"], pause["workspace_id"], want)
		}
	}
}

func TestDialing_RefusesInvalidChanges(t *testing.T) {
	t.Parallel()
	o := open(t)
	for name, tt := range map[string]struct{ body, field string }{
		"no state":                {`{"reason":"r"}`, "state"},
		"an unknown state":        {`{"state":"stopped","reason":"r"}`, "state"},
		"a state of another type": {`{"state":true,"reason":"r"}`, "state"},
		"a pause without reason":  {`{"state":"paused"}`, "reason"},
		"an empty reason":         {`{"state":"paused","reason":" "}`, "reason"},
		"a long reason":           {`{"state":"paused","reason":"` + strings.Repeat("ä", 501) + `"}`, "reason"},
		"until in the past":       {`{"state":"paused","reason":"r","until":"2020-01-01T00:00:00Z"}`, "until"},
		"until without offset":    {`{"state":"paused","reason":"r","until":"2099-01-01T00:00:00"}`, "until"},
		"until too far ahead":     {`{"state":"paused","reason":"r","until":"2999-01-01T00:00:00Z"}`, "until"},
		"until of another type":   {`{"state":"paused","reason":"r","until":5}`, "until"},
		"names in another case":   {`{"State":"paused","Reason":"r"}`, "state"},
		"an empty body":           {``, "body"},
	} {
		status, answer, body := o.sendOperator(t, http.MethodPut, "/admin/v1/dialing", tt.body)
		fault, _ := answer["error"].(map[string]any)
		if status != http.StatusUnprocessableEntity || fault["code"] != "validation_error" {
			t.Errorf("%s: %d %s, want 422 validation_error", name, status, body)
		} else if message, _ := fault["message"].(string); !strings.HasPrefix(message, tt.field+" ") {
			t.Errorf("%s: message = %q, want it to name %s", name, message, tt.field)
		}
	}
	if _, state, body := o.sendOperator(t, http.MethodGet, "/admin/v1/dialing", ""); state["set_at"] != nil {
		t.Errorf("state after refused changes = %s, want no change", body)
	}
}

func TestDialing_UnknownScopeIsAnsweredWith404(t *testing.T) {
	t.Parallel()
	o := open(t)
	other := uuid.Must(uuid.NewV7())
	if _, err := o.pool.Exec(t.Context(), `INSERT INTO agents (agent_id, workspace_id, version, name, from_e164,
		max_call_seconds, deleted) VALUES ($1, $2, 1, 'Bo', '', 600, false)`, other, uuid.Must(uuid.NewV7())); err != nil {
		t.Fatal(err)
	}
	agents := "/admin/v1/workspaces/" + o.workspace.String() + "/agents/"
	for _, path := range []string{
		agents + uuid.NewString() + "/dialing", agents + other.String() + "/dialing", agents + "ida/dialing",
		lines + "/" + uuid.NewString() + "/dialing", lines + "/main/dialing",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			status, _, body := o.sendOperator(t, method, path, `{"state":"paused","reason":"r"}`)
			if status != http.StatusNotFound {
				t.Errorf("%s %s = %d %s, want 404", method, path, status, body)
			}
		}
	}
}

func TestDialing_StateContainsTheAPIKeyThatChangedIt(t *testing.T) {
	t.Parallel()
	o, key := open(t), uuid.Must(uuid.NewV7())
	send := func(workspace uuid.UUID, method, body string) map[string]any {
		token, err := o.gateway.SignCaller("dialer", serviceauth.Caller{
			WorkspaceID: workspace, RequestID: uuid.Must(uuid.NewV7()), Access: serviceauth.Write, KeyID: key,
		})
		if err != nil {
			t.Fatal(err)
		}
		request, _ := testkit.Request(t, method, "/v1/dialing", []byte(body))
		request.Header.Set(serviceauth.CallerHeader, token)
		answer := httptest.NewRecorder()
		o.handler.ServeHTTP(answer, request)
		var state map[string]any
		if err := json.Unmarshal(answer.Body.Bytes(), &state); err != nil || answer.Code != http.StatusOK {
			t.Fatalf("%s /v1/dialing = %d %s, want 200", method, answer.Code, answer.Body)
		}
		return state
	}
	state := send(o.workspace, http.MethodPut, `{"state":"paused","reason":"Wrong script"}`)
	actor, _ := state["set_by"].(map[string]any)
	if actor["type"] != "api_key" || actor["id"] != key.String() || actor["name"] != nil {
		t.Errorf("set_by = %v, want the API key %s", actor, key)
	}
	if state := send(uuid.Must(uuid.NewV7()), http.MethodGet, ""); state["state"] != "active" {
		t.Errorf("state of another workspace = %v, want active", state["state"])
	}
	path := "/admin/v1/workspaces/" + o.workspace.String() + "/dialing"
	if _, state, body := o.sendOperator(t, http.MethodGet, path, ""); state["state"] != "paused" {
		t.Errorf("state for the operator = %s, want paused", body)
	}
}

func TestDialing_StateContainsThePersonWhoPausedDialing(t *testing.T) {
	t.Parallel()
	o, person := open(t), uuid.Must(uuid.NewV7())
	const path = "/admin/v1/dialing"
	pause := func(name string) map[string]any {
		token, err := o.gateway.SignCaller("dialer", serviceauth.Caller{RequestID: uuid.Must(uuid.NewV7()),
			Access: serviceauth.Write, Operator: "person:" + person.String(), PersonName: name})
		if err != nil {
			t.Fatal(err)
		}
		request, _ := testkit.Request(t, http.MethodPut, path, []byte(`{"state":"paused","reason":"Incident"}`))
		request.Header.Set(serviceauth.CallerHeader, token)
		answer := httptest.NewRecorder()
		o.handler.ServeHTTP(answer, request)
		if answer.Code != http.StatusOK {
			t.Fatalf("PUT %s = %d %s, want 200", path, answer.Code, answer.Body)
		}
		_, state, _ := o.sendOperator(t, http.MethodGet, path, "")
		actor, _ := state["set_by"].(map[string]any)
		return actor
	}
	want := map[string]any{"type": "user", "id": person.String(), "name": "Grace"}
	if diff := cmp.Diff(want, pause("Grace")); diff != "" {
		t.Errorf("set_by (-want +got):\n%s", diff)
	}
	want["name"] = nil // an earlier version of the gateway sends no name
	if diff := cmp.Diff(want, pause("")); diff != "" {
		t.Errorf("set_by without a name (-want +got):\n%s", diff)
	}
	if _, err := o.pool.Exec(t.Context(), `UPDATE dialing_states SET actor_type = 'operator', actor_id = NULL,
		actor_name = 'person:' || actor_id`); err != nil {
		t.Fatal(err)
	}
	_, state, _ := o.sendOperator(t, http.MethodGet, path, "")
	if diff := cmp.Diff(want, state["set_by"]); diff != "" {
		t.Errorf("set_by that a dialer of an earlier version stored (-want +got):\n%s", diff)
	}
}
