package httpapi_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/gateway/internal/audit"
	"ringfence.dev/services/gateway/internal/httpapi"
	"ringfence.dev/services/gateway/internal/people"
	"ringfence.dev/services/gateway/internal/proxy"
)

// listedEntry is an entry in the response of GET /v1/audit.
type listedEntry struct {
	ID         uuid.UUID
	At         time.Time
	ActorType  string `json:"actor_type"`
	ActorID    string `json:"actor_id"`
	ActorName  string `json:"actor_name"`
	Action     string
	ObjectType string `json:"object_type"`
	ObjectID   string `json:"object_id"`
	Before     map[string]any
	After      map[string]any
	RequestID  string `json:"request_id"`
}

// entries returns the entries in the response of GET /v1/audit with the given key and query.
func (r *rig) entries(key, query string) (entries []listedEntry) {
	r.t.Helper()
	listed := r.customer("GET", "/v1/audit?"+query, key, "")
	var page struct{ Data []listedEntry }
	if err := json.Unmarshal([]byte(listed.body), &page); err != nil || listed.status != http.StatusOK {
		r.t.Fatalf("GET /v1/audit?%s = %d %s: %v", query, listed.status, listed.body, err)
	}
	return page.Data
}

// withoutKeys returns the entries whose object is neither a workspace nor an API key.
func withoutKeys(entries []listedEntry) []listedEntry {
	return slices.DeleteFunc(entries, func(e listedEntry) bool {
		return e.ObjectType == "api_key" || e.ObjectType == "workspace"
	})
}

// respond makes the fake services respond with a status and a body.
func (r *rig) respond(status int, body string) {
	r.answers(func(w http.ResponseWriter, _ receivedRequest) bool {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
		return true
	})
}

func TestAudit_ChangeOfAnAPIKeyIsListed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key, keyID := r.key(r.workspace(""), "write")
	r.answers(func(w http.ResponseWriter, h receivedRequest) bool {
		name := "null"
		if h.method == "PATCH" {
			name = `"Ada"`
		}
		_, _ = io.WriteString(w, `{"id":"`+anID+`","name":`+name+`,"external_id":"7","metadata":{"a":"secret text"}}`)
		return true
	})
	changed := r.customer("PATCH", "/v1/contacts/"+anID, key, `{"name":"Ada"}`)
	if changed.status != http.StatusOK || !strings.Contains(changed.body, `"Ada"`) {
		t.Fatalf("PATCH contact = %d %s, want 200 with the name", changed.status, changed.body)
	}
	entries := withoutKeys(r.entries(key, ""))
	if len(entries) != 1 {
		t.Fatalf("entries = %+v, want one", entries)
	}
	got := entries[0]
	for name, pair := range map[string][2]string{
		"actor_type": {got.ActorType, "api_key"}, "actor_id": {got.ActorID, keyID}, "actor_name": {got.ActorName, "test"},
		"action": {got.Action, "contact.update"}, "object_type": {got.ObjectType, "contact"},
		"object_id": {got.ObjectID, anID}, "request_id": {got.RequestID, changed.header.Get("X-Request-Id")},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s = %q, want %q", name, pair[0], pair[1])
		}
	}
	if got.Before["name"] != nil {
		t.Errorf("name before = %v, want null", got.Before["name"])
	}
	if got.After["name"] != "[redacted]" {
		t.Errorf("name after = %v, want it redacted, because an erasure deletes it", got.After["name"])
	}
	if got.After["metadata"] != "[redacted]" {
		t.Errorf("metadata after = %v, want it redacted", got.After["metadata"])
	}
	if got.After["external_id"] != "7" {
		t.Errorf("external_id after = %v, want 7", got.After["external_id"])
	}
	if n := r.count("audit_intents"); n != 0 {
		t.Errorf("pending entries = %d, want 0", n)
	}
}

func TestAudit_RefusedAndRepeatedChangesHaveNoEntry(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		answer  func(w http.ResponseWriter, h receivedRequest) bool
		entries int
		object  string
	}{
		{name: "accepted", entries: 1, object: anID, answer: func(w http.ResponseWriter, _ receivedRequest) bool {
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, `{"id":"`+anID+`"}`)
			return true
		}},
		{name: "replayed", answer: func(w http.ResponseWriter, _ receivedRequest) bool {
			w.Header().Set("Idempotency-Replayed", "true")
			_, _ = io.WriteString(w, `{"id":"`+anID+`"}`)
			return true
		}},
		{name: "refused", answer: func(w http.ResponseWriter, _ receivedRequest) bool {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, `{"error":{"code":"invalid_phone","message":"x"}}`)
			return true
		}},
		{name: "failed", entries: 1, answer: func(w http.ResponseWriter, _ receivedRequest) bool {
			w.WriteHeader(http.StatusInternalServerError)
			return true
		}},
		{name: "connection lost", entries: 1, answer: func(http.ResponseWriter, receivedRequest) bool {
			panic(http.ErrAbortHandler)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			workspace := r.workspace("")
			key, _ := r.key(workspace, "write")
			r.answers(row.answer)
			r.customer("POST", "/v1/calls", key, `{}`)
			entries := withoutKeys(r.entries(key, ""))
			if len(entries) != row.entries {
				t.Fatalf("entries = %+v, want %d", entries, row.entries)
			}
			if n := r.count("audit_intents"); n != 0 {
				t.Errorf("pending entries = %d, want 0", n)
			}
			if row.object != "" && entries[0].ObjectID != row.object {
				t.Errorf("object_id = %s, want the id in the response, %s", entries[0].ObjectID, row.object)
			}
			if row.entries > 0 && entries[0].Action != "call_request.create" {
				t.Errorf("action = %s, want call_request.create", entries[0].Action)
			}
		})
	}
}

func TestAudit_ChangeThatReachedNoServiceIsNotListed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key, _ := r.key(r.workspace(""), "write")
	r.owners[proxy.Calls].Close()
	wantAnswer(t, "POST calls", r.customer("POST", "/v1/calls", key, `{}`), http.StatusServiceUnavailable, "unavailable")
	if entries := withoutKeys(r.entries(key, "")); len(entries) != 0 {
		t.Errorf("entries = %+v, want none", entries)
	}
}

const (
	spokenCall  = `{"id":"` + anID + `","transcript":{"turns":[{"role":"agent","text":"hello"}]},"recording_url":null}`
	silentCall  = `{"id":"` + anID + `","transcript":{"turns":[]},"recording_url":null}`
	summedCall  = `{"id":"` + anID + `","summary":{"next_action":"call back"},"recording_url":null}`
	recordedOne = `{"id":"` + anID + `","transcript":null,"recording_url":"https://example.com/1"}`
)

func TestAudit_AccessToTranscriptsAndRecordingsIsListed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key, keyID := r.key(r.workspace(""), "read")
	writer, _ := r.key(r.workspaceOf(keyID), "write")
	seen := 0
	for _, row := range []struct {
		name, path, body string
		status           int
		want             []string
	}{
		{name: "call", path: "/v1/calls/" + anID, body: spokenCall, want: []string{"transcript.read"}},
		{name: "call without a transcript", path: "/v1/calls/" + anID, body: silentCall},
		{name: "call with a summary only", path: "/v1/calls/" + anID, body: summedCall, want: []string{"transcript.read"}},
		{name: "call with a recording", path: "/v1/calls/" + anID, body: recordedOne, want: []string{"recording.read"}},
		{name: "transcript", path: "/v1/calls/" + anID + "/transcript", body: `{"turns":[]}`,
			want: []string{"transcript.read"}},
		{name: "no transcript", path: "/v1/calls/" + anID + "/transcript", status: 404, body: `{}`},
		{name: "recording", path: "/v1/calls/" + anID + "/recording", body: `{"url":"x"}`, want: []string{"recording.read"}},
		{name: "delivery", path: "/v1/webhook-deliveries/" + anID, body: `{"event":{"data":` + spokenCall + `}}`,
			want: []string{"webhook_delivery.read"}},
		{name: "delivery with a summary only", path: "/v1/webhook-deliveries/" + anID,
			body: `{"event":{"data":` + summedCall + `}}`, want: []string{"webhook_delivery.read"}},
		{name: "delivery without a transcript", path: "/v1/webhook-deliveries/" + anID, body: `{"event":null}`},
		{name: "list", path: "/v1/calls", body: `{"data":[]}`},
	} {
		status := max(row.status, http.StatusOK)
		if row.status != 0 {
			status = row.status
		}
		r.respond(status, row.body)
		got := r.customer("GET", row.path, key, "")
		if got.status != status || got.body != row.body {
			t.Errorf("%s = %d %s, want %d %s", row.name, got.status, got.body, status, row.body)
		}
		entries := withoutKeys(r.entries(writer, ""))
		var actions []string
		for _, e := range entries[:len(entries)-seen] {
			actions = append(actions, e.Action)
			if e.ActorID != keyID || e.ObjectID != anID {
				t.Errorf("%s: entry = %+v, want the key %s and the object %s", row.name, e, keyID, anID)
			}
		}
		if !slices.Equal(actions, row.want) {
			t.Errorf("%s: actions = %v, want %v", row.name, actions, row.want)
		}
		seen = len(entries)
	}
}

// workspaceOf returns the workspace to which a key belongs.
func (r *rig) workspaceOf(keyID string) (id string) {
	r.t.Helper()
	const sql = `SELECT workspace_id::text FROM api_keys WHERE id = $1`
	if err := r.pool.QueryRow(r.t.Context(), sql, keyID).Scan(&id); err != nil {
		r.t.Fatal(err)
	}
	return id
}

func TestAudit_AccessThatCannotBeAuditedIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key, _ := r.key(r.workspace(""), "read")
	r.respond(http.StatusOK, spokenCall)
	r.pgOwner(`ALTER TABLE audit_entries ADD CHECK (method <> 'GET') NOT VALID`)
	got := r.customer("GET", "/v1/calls/"+anID, key, "")
	wantAnswer(t, "GET call", got, http.StatusServiceUnavailable, "unavailable")
	if strings.Contains(got.body, "hello") {
		t.Errorf("body = %s, want no transcript", got.body)
	}
}

func TestAudit_OperatorsReasonForReadingATranscriptIsListed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	workspace := r.workspace("")
	key, _ := r.key(workspace, "write")
	owner, ownerID := r.memberSession(workspace, people.Owner)
	r.respond(http.StatusOK, spokenCall)
	header := http.Header{"Ringfence-Workspace": {workspace}, "Ringfence-Reason": {"complaint 7"}}
	for _, token := range []string{r.operatorSession(), owner} {
		got := send(t, "GET", r.console.URL+"/v1/calls/"+anID, token, "", header)
		if got.status != http.StatusOK {
			t.Fatalf("GET call = %d %s", got.status, got.body)
		}
	}
	entries := withoutKeys(r.entries(key, ""))
	if len(entries) != 2 {
		t.Fatalf("entries = %+v, want two", entries)
	}
	if e := entries[1]; e.ActorType != "user" || e.After["reason"] != "complaint 7" {
		t.Errorf("entry of the operator = %+v, want a user with the reason complaint 7", e)
	}
	if e := entries[0]; e.ActorID != ownerID.String() || e.ActorName != "Grace" || e.After != nil {
		t.Errorf("entry of the owner = %+v, want Grace without a reason", e)
	}
}

// With a new subscription or API key, an operator can read transcripts outside of the console.
func TestAudit_OperatorsReasonForAChangeIsListed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	workspace, operator := r.workspace(""), r.operatorSession()
	key, _ := r.key(workspace, "write")
	r.answers(func(w http.ResponseWriter, h receivedRequest) bool {
		if h.owner != proxy.Webhooks {
			return false
		}
		_, _ = io.WriteString(w, `{"id":"`+anID+`","status":"active"}`)
		return true
	})
	header := http.Header{"Ringfence-Workspace": {workspace}, "Ringfence-Reason": {"complaint 7"}}
	keys := "/admin/v1/workspaces/" + workspace + "/api-keys"
	for action, request := range map[string][3]string{
		"webhook_subscription.create": {"POST", "/v1/webhook-subscriptions", `{}`},
		"webhook_subscription.replay": {"POST", "/v1/webhook-subscriptions/" + anID + "/replay", `{}`},
		"api_key.create":              {"POST", keys, `{"name":"a","access":"read"}`},
	} {
		made := send(t, request[0], r.console.URL+request[1], operator, request[2], header)
		if made.status >= http.StatusMultipleChoices {
			t.Errorf("%s = %d %s", action, made.status, made.body)
		}
		e := r.entries(key, "")[0]
		if e.Action != action || e.After["reason"] != "complaint 7" || e.After["id"] == nil {
			t.Errorf("entry = %+v, want %s with the reason and the state", e, action)
		}
	}
	dialing := `{"state":"paused","reason":"Incident"}`
	r.answers(func(w http.ResponseWriter, _ receivedRequest) bool {
		_, _ = io.WriteString(w, dialing)
		return true
	})
	send(t, "PUT", r.console.URL+"/v1/dialing", operator, dialing, header)
	if e := r.entries(key, "")[0]; e.After["reason"] != "Incident" {
		t.Errorf("entry = %+v, want the reason of the pause", e)
	}
}

func TestAudit_ListReturnsTheEntriesThatMatchTheQuery(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	workspace := r.workspace("")
	key, keyID := r.key(workspace, "write")
	other, _ := r.key(r.workspace(""), "write")
	r.respond(http.StatusOK, `{"phone_e164":"+15550100"}`)
	r.customer("POST", "/v1/opt-outs", key, `{}`)
	r.customer("DELETE", "/v1/opt-outs/%2B15550100", key, "")
	all := r.entries(key, "")
	if len(all) != 4 { // two other entries record that the workspace and the key were created
		t.Fatalf("entries = %+v, want 4", all)
	}
	for query, want := range map[string]int{
		"actor_id=" + keyID: 2, "actor_id=ada": 2, "object_type=opt_out": 2, "object_id=%2B15550100": 2,
		"object_id=+15550100": 2, "object_id=" + keyID: 1, "object_type=api_key&actor_id=ada": 1,
		"object_type=api_key&actor_id=" + keyID: 0, "created_after=2020-01-01T00:00:00Z": 4,
		"created_before=2020-01-01T00:00:00Z": 0, "limit=3": 3, "starting_after=" + all[1].ID.String(): 2,
		"created_before=" + url.QueryEscape(all[0].At.Format(time.RFC3339Nano)): len(all) - sameTime(all),
	} {
		if got := r.entries(key, query); len(got) != want {
			t.Errorf("entries?%s = %d, want %d", query, len(got), want)
		}
	}
	for _, query := range []string{"limit=0", "starting_after=x", "starting_after=" + uuid.NewString(),
		"created_after=yesterday", "object_id=%00", "actor_id=a&actor_id=b"} {
		wantAnswer(t, query, r.customer("GET", "/v1/audit?"+query, key, ""), http.StatusUnprocessableEntity,
			"validation_error")
	}
	foreign := "/v1/audit?starting_after=" + all[0].ID.String()
	wantAnswer(t, "cursor of another workspace", r.customer("GET", foreign, other, ""), http.StatusUnprocessableEntity,
		"validation_error")
	if got := r.entries(other, "object_type=opt_out"); len(got) != 0 {
		t.Errorf("entries of another workspace = %+v, want none", got)
	}
	operator := r.operator("GET", "/admin/v1/workspaces/"+workspace+"/audit?object_type=opt_out", "")
	if n := strings.Count(operator.body, `"opt_out"`); n != 2 {
		t.Errorf("entries that an operator reads = %d, want 2: %s", n, operator.body)
	}
}

// sameTime counts the entries that have the same time as the newest entry.
func sameTime(entries []listedEntry) (n int) {
	for _, e := range entries {
		if e.At.Equal(entries[0].At) {
			n++
		}
	}
	return n
}

func TestAudit_NeedsWriteAccess(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key, _ := r.key(r.workspace(""), "read")
	for _, method := range []string{"GET", "POST"} {
		wantAnswer(t, method, r.customer(method, "/v1/audit", key, ""), http.StatusForbidden, "missing_scope")
	}
	wantAnswer(t, "HEAD", r.customer("HEAD", "/v1/audit", key, ""), http.StatusForbidden, "")
}

func TestAudit_ChangesOfMembersAreListed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	workspace := r.workspace("")
	key, _ := r.key(workspace, "write")
	owner, ownerID := r.memberSession(workspace, people.Owner)
	_, member := r.memberSession(workspace, people.Viewer)
	invited := r.visitIn(workspace, "POST", "/console/v1/invitations", owner, `{"role":"viewer"}`)
	wantAnswer(t, "POST invitations", invited, http.StatusCreated, "")
	path := "/console/v1/members/" + member.String()
	wantAnswer(t, "PATCH member", r.visitIn(workspace, "PATCH", path, owner, `{"role":"developer"}`), http.StatusOK, "")
	wantAnswer(t, "PATCH with a wrong role", r.visitIn(workspace, "PATCH", path, owner, `{"role":"x"}`),
		http.StatusUnprocessableEntity, "validation_error")
	wantAnswer(t, "DELETE member", r.visitIn(workspace, "DELETE", path, owner, ""), http.StatusNoContent, "")

	entries := withoutKeys(r.entries(key, ""))
	var actions []string
	for _, e := range entries {
		actions = append(actions, e.Action)
		if e.ActorType != "user" || e.ActorID != ownerID.String() {
			t.Errorf("%s: actor = %s %s, want the user %s", e.Action, e.ActorType, e.ActorID, ownerID)
		}
	}
	if want := []string{"member.delete", "member.update", "invitation.create"}; !slices.Equal(actions, want) {
		t.Fatalf("actions = %v, want %v", actions, want)
	}
	if e := entries[1]; e.Before["role"] != "viewer" || e.After["role"] != "developer" || e.ObjectID != member.String() {
		t.Errorf("entry = %+v, want the role viewer before and developer after", e)
	}
	stored, err := json.Marshal(entries)
	if err != nil {
		t.Fatal(err)
	}
	if token := invited.member("token"); token == "" || strings.Contains(string(stored), token) {
		t.Errorf("the audit log contains the token %q of the invitation: %s", token, stored)
	}
}

// These routes have no audit entry, because a preview changes nothing, and a started registration
// has not created a passkey yet.
var unauditedRoutes = []string{"POST /v1/decisions/preview", "POST /console/v1/passkeys/start"}

func TestAudit_EveryChangeHasAnAction(t *testing.T) {
	t.Parallel()
	for _, rule := range httpapi.ConsoleRules() {
		if rule.Method == http.MethodGet {
			continue
		}
		object, found := audit.ObjectOf(rule.Method, rule.Template, &url.URL{Path: rule.Template})
		want := !slices.Contains(unauditedRoutes, rule.Method+" "+rule.Template)
		if found != want {
			t.Errorf("%s %s has the action %q, want an action: %t", rule.Method, rule.Template, object.Action, want)
		}
		match, ok := proxy.Admin().Find(&url.URL{Path: samplePath(rule.Template)})
		if ok && match.Template != rule.Template {
			t.Errorf("%s %s is forwarded as %s, so its entry has no action", rule.Method, rule.Template, match.Template)
		}
	}
}

func TestConsole_StreamHidesTranscriptsFromSomeRoles(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	workspace := r.workspace("")
	key, _ := r.key(workspace, "write")
	viewer, _ := r.memberSession(workspace, people.Viewer)
	developer, _ := r.memberSession(workspace, people.Developer)
	operator := r.operatorSession()
	const head, tail = ": open\n\nid: 7\nevent: call.completed\n", "\n: keep-alive\n\n"
	const event = `{"data":{"id":"1","recording_url":"https://example.com","summary":{"a":"b"},` +
		`"transcript":{"turns":[{"text":"hello"}]}},"type":"call.completed"}`
	const hidden = `{"data":{"id":"1","recording_url":null,"summary":null,"transcript":null},"type":"call.completed"}`
	r.answers(func(w http.ResponseWriter, _ receivedRequest) bool {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, head+"data: "+event+"\n"+tail)
		return true
	})
	for _, row := range []struct{ name, token, reason, redacted, want string }{
		{name: "viewer", token: viewer, want: hidden},
		{name: "operator without a reason", token: operator, want: hidden},
		{name: "operator with a reason", token: operator, reason: "complaint 7", want: event},
		{name: "developer", token: developer, want: event},
		{name: "developer who asks for ids only", token: developer, redacted: "true", want: hidden},
	} {
		header := http.Header{"Ringfence-Workspace": {workspace}}
		if row.reason != "" {
			header.Set("Ringfence-Reason", row.reason)
		}
		if row.redacted != "" {
			header.Set("Ringfence-Redacted", row.redacted)
		}
		got := send(t, "GET", r.console.URL+"/v1/events", row.token, "", header)
		if want := head + "data: " + row.want + "\n" + tail; got.body != want {
			t.Errorf("%s: stream = %q, want %q", row.name, got.body, want)
		}
	}
	// A stream must be recorded as a read only if it contains transcripts.
	if entries := r.entries(key, "object_type=event_stream"); len(entries) != 2 {
		t.Errorf("entries = %+v, want the streams of the operator with a reason and of the developer", entries)
	}
}
