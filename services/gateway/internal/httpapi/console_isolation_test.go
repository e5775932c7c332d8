package httpapi_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/gateway/internal/httpapi"
	"ringfence.dev/services/gateway/internal/people"
)

// foreignObject is an object of another workspace or person. The id replaces {x} in path.
type foreignObject struct {
	operation, path, body string
	theirs, nobodys       string
}

// foreignWorkspace is a workspace with an owner, a member and an invitation.
type foreignWorkspace struct {
	id, owner               string
	memberID                uuid.UUID
	invitation, sessionID   string
	passkey, unknownPasskey string
}

func (r *rig) foreignWorkspace() (w foreignWorkspace) {
	r.t.Helper()
	w.id = r.workspace("")
	var ownerID uuid.UUID
	w.owner, ownerID = r.memberSession(w.id, people.Owner)
	_, w.memberID = r.memberSession(w.id, people.Viewer)
	made := r.visitIn(w.id, "POST", "/console/v1/invitations", w.owner, `{"role":"viewer"}`)
	if w.invitation = made.member("id"); w.invitation == "" {
		r.t.Fatalf("POST invitations = %d %s, want 201", made.status, made.body)
	}
	w.sessionID = uuid.NewString()
	r.exec(`INSERT INTO sessions (id, hash, person_id, method) VALUES ($1, $2, $3, 'passkey')`, w.sessionID,
		hashOf(people.NewSessionToken()), ownerID)
	// the owner needs two passkeys, because a person cannot delete the last one
	for _, id := range []string{"first passkey", "second passkey"} {
		r.exec(`INSERT INTO passkeys (id, person_id, name, credential) VALUES ($1, $2, 'Laptop', '{}')`, []byte(id), ownerID)
	}
	w.passkey = base64.RawURLEncoding.EncodeToString([]byte("first passkey"))
	w.unknownPasskey = base64.RawURLEncoding.EncodeToString([]byte("third passkey"))
	return w
}

// objects returns requests in an order in which the owner of the objects can send them: deletions
// are last.
func (w foreignWorkspace) objects() []foreignObject {
	const base = "/console/v1"
	member, unknown := w.memberID.String(), uuid.NewString()
	return []foreignObject{
		{"GET /members", base + "/members?starting_after={x}", "", member, unknown},
		{"GET /members/{person_id}", base + "/members/{x}", "", member, unknown},
		{"GET /invitations", base + "/invitations?starting_after={x}", "", w.invitation, unknown},
		{"GET /invitations/{invitation_id}", base + "/invitations/{x}", "", w.invitation, unknown},
		{"PATCH /members/{person_id}", base + "/members/{x}", `{"role":"compliance"}`, member, unknown},
		{"DELETE /members/{person_id}", base + "/members/{x}", "", member, unknown},
		{"DELETE /invitations/{invitation_id}", base + "/invitations/{x}", "", w.invitation, unknown},
		{"DELETE /sessions/{session_id}", base + "/sessions/{x}", "", w.sessionID, unknown},
		{"DELETE /passkeys/{passkey_id}", base + "/passkeys/{x}", "", w.passkey, w.unknownPasskey},
	}
}

func (o foreignObject) send(r *rig, workspace, token, id string) answered {
	r.t.Helper()
	method, _, _ := strings.Cut(o.operation, " ")
	got := r.visitIn(workspace, method, strings.Replace(o.path, "{x}", id, 1), token, o.body)
	got.body = strings.ReplaceAll(got.body, id, "{x}")
	return got
}

// peopleState returns the members, invitations, sessions and passkeys of all workspaces.
func (r *rig) peopleState() (state string) {
	r.t.Helper()
	const sql = `SELECT concat_ws(' ',
		(SELECT jsonb_agg(to_jsonb(m) ORDER BY person_id) FROM memberships m),
		(SELECT jsonb_agg(to_jsonb(i) ORDER BY id) FROM invitations i),
		(SELECT jsonb_agg(s.id ORDER BY id) FROM sessions s), (SELECT jsonb_agg(to_jsonb(p) ORDER BY id) FROM passkeys p))`
	if err := r.pool.QueryRow(r.t.Context(), sql).Scan(&state); err != nil {
		r.t.Fatal(err)
	}
	return state
}

// An owner uses ids of another workspace and of another person. The responses must be the same as
// for ids that do not exist, and nothing may change. The same request by the owner of the object
// must get another response, because a request that is always refused proves nothing.
func TestConsole_ObjectsOfAnotherWorkspaceAreNotFound(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	other := r.foreignWorkspace()
	workspace := r.workspace("")
	owner, _ := r.memberSession(workspace, people.Owner)
	before, responses := r.peopleState(), map[string]answered{}
	for _, o := range other.objects() {
		nobodys, theirs := o.send(r, workspace, owner, o.nobodys), o.send(r, workspace, owner, o.theirs)
		if theirs.status != nobodys.status {
			t.Errorf("%s: status = %d, and %d for an unknown id", o.operation, theirs.status, nobodys.status)
		}
		if theirs.body != nobodys.body {
			t.Errorf("%s: body = %s, and %s for an unknown id", o.operation, theirs.body, nobodys.body)
		}
		responses[o.operation] = theirs
	}
	for _, rule := range httpapi.ConsoleRules() {
		if rule.OfSystem && strings.HasPrefix(rule.Template, "/console/v1/") {
			path := strings.NewReplacer("{person_id}", other.memberID.String(), "{invitation_id}", other.invitation).
				Replace(rule.Template)
			wantAnswer(t, rule.Method+" "+path, r.visitIn(workspace, rule.Method, path, owner, ""), http.StatusForbidden,
				"forbidden")
		}
	}
	if after := r.peopleState(); after != before {
		t.Errorf("a request of another workspace changed something:\n before %s\n after  %s", before, after)
	}
	for _, o := range other.objects() {
		own := o.send(r, other.id, other.owner, o.theirs)
		if own.status >= http.StatusBadRequest {
			t.Errorf("%s by the owner of the object = %d %s, want a success", o.operation, own.status, own.body)
		}
		if own.status == responses[o.operation].status && own.body == responses[o.operation].body {
			t.Errorf("%s: its owner gets the same response %d %s", o.operation, own.status, own.body)
		}
	}
}

// Each operation with an id in the API description must be in foreignWorkspace.objects.
func TestConsole_EveryRouteWithAnIDHasAnIsolationTest(t *testing.T) {
	t.Parallel()
	var described struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(openapi.ConsoleDescription, &described); err != nil {
		t.Fatal(err)
	}
	tried := map[string]bool{}
	for _, o := range (foreignWorkspace{}).objects() {
		tried[o.operation] = true
	}
	ofSystem := func(method, path string) bool {
		return slices.ContainsFunc(httpapi.ConsoleRules(), func(rule httpapi.ConsoleRule) bool {
			return rule.OfSystem && rule.Method == method && rule.Template == path
		})
	}
	checked := 0
	for path, item := range described.Paths {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
			_, there := item[strings.ToLower(method)]
			if !there || !strings.Contains(path, "{") || ofSystem(method, path) {
				continue
			}
			checked++
			if operation := method + " " + strings.TrimPrefix(path, "/console/v1"); !tried[operation] {
				t.Errorf("%s has no isolation test: add it to objects()", operation)
			}
		}
	}
	if checked < 7 {
		t.Errorf("routes with an id = %d, want at least 7", checked)
	}
}
