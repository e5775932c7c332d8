package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/testkit"
)

const (
	lines      = "/admin/v1/trunks"
	wholeTrunk = `{"name":"Main","status":"active","host":"sip.example.net","port":5061,"transport":"tls",` +
		`"outbound_proxy":"proxy.example.net:5061","username":"ringfence",
		"password":"s3cret-of-the-trunk","register":true,"caller_ids":["+14155550100"],"caller_id_header":"p_asserted_identity","number_format":"prefix","number_prefix":"00",
		"codecs":["pcma","pcmu"],"srtp":"required","session_seconds":90,"channels":30,"calls_per_second":5,"priority":1,"inbound_sources":["192.0.2.0/24","2001:db8::7"]}`
)

func (o fixture) sendOperator(t *testing.T, method, path, body string) (int, map[string]any, string) {
	t.Helper()
	request, _ := testkit.Request(t, method, path, []byte(body))
	o.sign(t, request)
	answer := httptest.NewRecorder()
	o.handler.ServeHTTP(answer, request)
	testkit.CheckTimestamps(t, answer.Body.Bytes())
	var responseBody map[string]any
	if err := json.Unmarshal(answer.Body.Bytes(), &responseBody); err != nil {
		t.Fatalf("%s %s = %d %q", method, path, answer.Code, answer.Body)
	}
	return answer.Code, responseBody, answer.Body.String()
}

func TestTrunks_CanBeCreatedListedChangedAndRemoved(t *testing.T) {
	t.Parallel()
	o := open(t)
	status, created, responseBody := o.sendOperator(t, http.MethodPost, lines, wholeTrunk)
	switch {
	case status != http.StatusCreated:
		t.Fatalf("status = %v, want %v", status, http.StatusCreated)
	case created["has_password"] != true:
		t.Fatalf(`made["has_password"] = %v, want true`, created["has_password"])
	case created["host"] != "sip.example.net":
		t.Fatalf(`made["host"] = %v, want "sip.example.net"`, created["host"])
	case strings.Contains(responseBody, "s3cret"):
		t.Fatalf("body = %q, want it not to contain %q", responseBody, "s3cret")
	}
	home := lines + "/" + created["id"].(string)
	if status, _, responseBody := o.sendOperator(t, http.MethodPost, lines,
		`{"name":"MAIN","host":"192.0.2.1"}`); status != http.StatusConflict {
		t.Errorf("a second trunk of the same name: status = %v, want %v", status, http.StatusConflict)
	} else if !strings.Contains(responseBody, "trunk_exists") {
		t.Errorf(`a second trunk of the same name: body = %q, want it to contain "trunk_exists"`, responseBody)
	}
	switch status, other, _ := o.sendOperator(t, http.MethodPost, lines, `{"name":"Other","host":"192.0.2.1"}`); {
	case status != http.StatusCreated:
		t.Errorf("status = %v, want %v", status, http.StatusCreated)
	case other["port"] != 5060.0:
		t.Errorf(`other["port"] = %v, want 5060.0`, other["port"])
	case other["has_password"] != false:
		t.Errorf(`other["has_password"] = %v, want false`, other["has_password"])
	}
	switch status, page, responseBody := o.sendOperator(t, http.MethodGet, lines+"?limit=1", ""); {
	case status != http.StatusOK:
		t.Errorf("status = %v, want %v", status, http.StatusOK)
	case len(page["data"].([]any)) != 1:
		t.Errorf(`length of page["data"].([]any) = %v, want 1`, len(page["data"].([]any)))
	case page["has_more"] != true:
		t.Errorf(`page["has_more"] = %v, want true`, page["has_more"])
	case strings.Contains(responseBody, "s3cret"):
		t.Errorf("body = %q, want it not to contain %q", responseBody, "s3cret")
	}
	switch status, changed, _ := o.sendOperator(t, http.MethodPatch, home, `{"channels":null,"name":"Second","id":"x"}`); {
	case status != http.StatusOK:
		t.Errorf("status = %v, want %v", status, http.StatusOK)
	case changed["channels"] != 10.0:
		t.Errorf(`changed["channels"] = %v, want 10.0`, changed["channels"])
	case changed["name"] != "Second":
		t.Errorf(`changed["name"] = %v, want "Second"`, changed["name"])
	case changed["has_password"] != true:
		t.Errorf(`changed["has_password"] = %v, want true`, changed["has_password"])
	case changed["srtp"] != "required":
		t.Errorf(`changed["srtp"] = %v, want "required"`, changed["srtp"])
	}
	if status, _, responseBody := o.sendOperator(t, http.MethodPatch, home,
		`{"username":null}`); status != http.StatusUnprocessableEntity {
		t.Errorf("PATCH that leaves a password without a user: status = %v, want %v",
			status, http.StatusUnprocessableEntity)
	} else if !strings.Contains(responseBody, `"message":"username `) {
		t.Errorf("PATCH that leaves a password without a user: body = %q, want it to contain %q",
			responseBody, `"message":"username `)
	}
	if status, changed, responseBody := o.sendOperator(t, http.MethodPatch, home,
		`{"password":null,"username":null,"register":false}`); status != http.StatusOK {
		t.Errorf("PATCH: status = %v, want %v; body = %s", status, http.StatusOK, responseBody)
	} else if changed["has_password"] != false {
		t.Errorf(`PATCH: changed["has_password"] = %v, want false; body = %s`, changed["has_password"], responseBody)
	}
	if status, _, responseBody := o.sendOperator(t, http.MethodDelete, home, ""); status != http.StatusOK {
		t.Errorf("DELETE = %d %s", status, responseBody)
	}
	for _, method := range []string{http.MethodGet, http.MethodPatch, http.MethodDelete} {
		for _, gone := range []string{home, lines + "/7"} {
			if status, _, responseBody := o.sendOperator(t, method, gone, "{}"); status != http.StatusNotFound {
				t.Errorf("%s %s after the removal: status = %v, want %v", method, gone, status, http.StatusNotFound)
			} else if !strings.Contains(responseBody, `"There is no such trunk."`) {
				t.Errorf("%s %s after the removal: body = %q, want it to contain %q", method, gone, responseBody,
					`"There is no such trunk."`)
			}
		}
	}
	if status, _, responseBody := o.sendOperator(t, http.MethodGet, lines+"?starting_after="+uuid.NewString(),
		""); status != http.StatusUnprocessableEntity {
		t.Errorf("an unknown cursor = %d %s", status, responseBody)
	}
}

func TestTrunks_PasswordIsStoredEncrypted(t *testing.T) {
	t.Parallel()
	o := open(t)
	if status, _, responseBody := o.sendOperator(t, http.MethodPost, lines, wholeTrunk); status != http.StatusCreated {
		t.Fatalf("POST = %d %s", status, responseBody)
	}
	var stored string
	switch err := o.pool.QueryRow(t.Context(),
		"SELECT t::text || encode(password_sealed, 'escape') FROM trunks t").Scan(&stored); {
	case err != nil:
		t.Errorf("Scan: %v", err)
	case stored == "":
		t.Error(`stored = "", want another value`)
	case strings.Contains(stored, "s3cret"):
		t.Errorf("stored = %q, want it not to contain %q", stored, "s3cret")
	}
}

func TestTrunks_TraceOfADisabledTrunkIsRefused(t *testing.T) {
	t.Parallel()
	o := open(t)
	status, created, responseBody := o.sendOperator(t, http.MethodPost, lines,
		`{"name":"Main","host":"192.0.2.1","status":"disabled","trace":true}`)
	if status != http.StatusCreated {
		t.Fatalf("POST = %d %s", status, responseBody)
	}
	// insertOwner stores the heartbeat of a process that does not answer trace requests.
	const insertOwner = "INSERT INTO sip_leg_owners (owner, seen_at) VALUES (gen_random_uuid(), now())"
	if _, err := o.pool.Exec(t.Context(), insertOwner); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"text", "pcap"} {
		status, body, _ := o.sendOperator(t, http.MethodGet, lines+"/"+created["id"].(string)+"/trace?format="+format, "")
		want := map[string]any{
			"code":    "trunk_disabled",
			"message": `The trunk "Main" is disabled, so no messages are recorded. Set its status to active.`,
		}
		got, _ := body["error"].(map[string]any)
		if status != http.StatusConflict {
			t.Errorf("%s: status = %d, want %d", format, status, http.StatusConflict)
		}
		for field, value := range want {
			if got[field] != value {
				t.Errorf("%s: %s = %v, want %v", format, field, got[field], value)
			}
		}
	}
}

func (o fixture) keyOf(agent uuid.UUID) string {
	return "/admin/v1/workspaces/" + o.workspace.String() + "/agent-keys/" + agent.String()
}

func TestAgentKeys_AreStoredEncryptedAndNeverReturned(t *testing.T) {
	t.Parallel()
	o := open(t)
	home := o.keyOf(o.agent)
	for body, want := range map[string]int{`{}`: 422, `{"key":"short"}`: 422, `{"key":"with spaces in the ` +
		`middle"}`: 422, `{"key":"s3cret-of-the-agent"}`: 200} {
		status, _, responseBody := o.sendOperator(t, http.MethodPut, home, body)
		switch {
		case status != want:
			t.Errorf("status = %v, want %v", status, want)
		case strings.Contains(responseBody, "s3cret"):
			t.Errorf("body = %q, want it not to contain %q", responseBody, "s3cret")
		case want == 422 && !strings.Contains(responseBody, `"message":"key `):
			t.Errorf("body = %q, want a message about the key", responseBody)
		}
	}
	switch status, read, responseBody := o.sendOperator(t, http.MethodGet, home, ""); {
	case status != http.StatusOK:
		t.Errorf("status = %v, want %v", status, http.StatusOK)
	case read["has_key"] != true:
		t.Errorf(`read["has_key"] = %v, want true`, read["has_key"])
	case strings.Contains(responseBody, "s3cret"):
		t.Errorf("body = %q, want it not to contain %q", responseBody, "s3cret")
	}
	var stored string
	if err := o.pool.QueryRow(t.Context(), "SELECT encode(sealed, 'escape') FROM agent_keys").Scan(&stored); err != nil {
		t.Errorf("QueryRow: %v", err)
	} else if strings.Contains(stored, "s3cret") {
		t.Errorf(`stored = %q, want it without "s3cret"`, stored)
	}
	for _, body := range []string{`{"key":"s3cret-of-the-agent"}`, `{"key":"short"}`, `{`} {
		if status, _, responseBody := o.sendOperator(t, http.MethodPut, o.keyOf(uuid.New()),
			body); status != http.StatusNotFound {
			t.Errorf("PUT %s for an unknown agent = %d %s", body, status, responseBody)
		}
	}
	for _, want := range []int{http.StatusOK, http.StatusNotFound} {
		if status, _, responseBody := o.sendOperator(t, http.MethodDelete, home, ""); status != want {
			t.Errorf("DELETE = %d %s", status, responseBody)
		}
	}
	if status, _, responseBody := o.sendOperator(t, http.MethodGet, home, ""); status != http.StatusNotFound {
		t.Errorf("GET after the removal = %d %s", status, responseBody)
	}
}

// The record of a new agent can arrive from agents.v1 after this request.
func TestAgentKeys_PUTRequestWaitsForTheRecordOfANewAgent(t *testing.T) {
	t.Parallel()
	o, late := open(t), uuid.New()
	done := make(chan int, 1)
	go func() {
		request, _ := testkit.Request(t, http.MethodPut, o.keyOf(late), []byte(`{"key":"s3cret-of-the-agent"}`))
		o.sign(t, request)
		answer := httptest.NewRecorder()
		o.handler.ServeHTTP(answer, request)
		done <- answer.Code
	}()
	if _, err := o.pool.Exec(t.Context(), "INSERT INTO agents (agent_id, workspace_id, version, name, from_e164, "+
		"max_call_seconds, deleted) VALUES ($1, $2, 1, 'Ada', '', 60, false)", late, o.workspace); err != nil {
		t.Fatal(err)
	}
	if status := <-done; status != http.StatusOK {
		t.Errorf("PUT = %d", status)
	}
}

func TestTrunks_ChangeWithAnOldETagIsRefused(t *testing.T) {
	t.Parallel()
	o := open(t)
	send := func(method, path, body, tag string) *httptest.ResponseRecorder {
		request, _ := testkit.Request(t, method, path, []byte(body))
		if tag != "" {
			request.Header.Set("If-Match", tag)
		}
		o.sign(t, request)
		answer := httptest.NewRecorder()
		o.handler.ServeHTTP(answer, request)
		return answer
	}
	created := send(http.MethodPost, lines, wholeTrunk, "")
	var made struct{ ID string }
	if err := json.Unmarshal(created.Body.Bytes(), &made); err != nil {
		t.Fatal(err)
	}
	path, old := lines+"/"+made.ID, created.Header().Get("ETag")
	if got := send(http.MethodGet, path, "", "").Header().Get("ETag"); got != old {
		t.Errorf("ETag of GET = %q, want %q as in the response of POST", got, old)
	}
	changed := send(http.MethodPatch, path, `{"channels":20}`, old)
	if changed.Code != http.StatusOK {
		t.Fatalf("PATCH with the ETag = %d %s, want 200", changed.Code, changed.Body)
	}
	const invalid = `{"channels":"the version is checked first"}`
	for method, body := range map[string]string{http.MethodPatch: invalid, http.MethodDelete: ""} {
		if got := send(method, path, body, old).Code; got != http.StatusPreconditionFailed {
			t.Errorf("%s with an old ETag = %d, want 412", method, got)
		}
	}
	if got := send(http.MethodDelete, path, "", changed.Header().Get("ETag")).Code; got != http.StatusOK {
		t.Errorf("DELETE with the new ETag = %d, want 200", got)
	}
}
