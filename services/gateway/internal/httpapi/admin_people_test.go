package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/services/gateway/internal/people"
)

// idsOf returns the ids of a page.
func idsOf(t *testing.T, got answered) (ids []string) {
	t.Helper()
	var page struct{ Data []struct{ ID string } }
	if err := json.Unmarshal([]byte(got.body), &page); err != nil {
		t.Fatalf("body = %s: %v", got.body, err)
	}
	for _, item := range page.Data {
		ids = append(ids, item.ID)
	}
	return ids
}

// wantIDs compares the ids of a page, newest first.
func wantIDs(t *testing.T, what string, got answered, want ...string) {
	t.Helper()
	if ids := strings.Join(idsOf(t, got), " "); ids != strings.Join(want, " ") {
		t.Errorf("%s: ids = %s, want %s", what, ids, strings.Join(want, " "))
	}
}

func TestOperatorAPI_InvitationIsAcceptedInTheConsole(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsoleWithPasskeys()
	workspace := r.workspace("")
	base := "/admin/v1/workspaces/" + workspace
	before := len(r.entriesAfter(0))
	invited := r.operator("POST", base+"/invitations", `{"role":"developer"}`)
	wantAnswer(t, "invitation", invited, http.StatusCreated, "")
	want := "https://console.example.com/invitations/" + invited.member("token")
	if got := invited.member("url"); got != want {
		t.Errorf("url = %q, want %q", got, want)
	}
	if got := invited.member("invited_by"); got != "ada" {
		t.Errorf("invited_by = %q, want ada", got)
	}
	wantIDs(t, "invitations", r.operator("GET", base+"/invitations", ""), invited.member("id"))
	personID := r.personOf(r.newDevice().signUp(invited.member("token"), "Grace").member("token"))
	wantIDs(t, "members", r.operator("GET", base+"/members", ""), personID)
	wantIDs(t, "people", r.operator("GET", "/admin/v1/people", ""), personID)
	changed := r.operator("PATCH", base+"/members/"+personID, `{"role":"viewer"}`)
	wantAnswer(t, "role", changed, http.StatusOK, "")
	if got := changed.member("role"); got != "viewer" {
		t.Errorf("role = %q, want viewer", got)
	}
	removed := r.operator("DELETE", base+"/members/"+personID, "")
	wantAnswer(t, "removal", removed, http.StatusOK, "")
	if want := `{"deleted":true,"id":"` + personID + `"}`; strings.TrimSpace(removed.body) != want {
		t.Errorf("body = %s, want %s", removed.body, want)
	}
	wantIDs(t, "members after the removal", r.operator("GET", base+"/members", ""))

	entries := r.entriesAfter(before)
	wantActions(t, "operator and person", entries, "invitation.create", "invitation.accept", "session.create",
		"member.update", "member.delete")
	for _, e := range entries {
		if e.Action != "member.update" {
			continue
		}
		if e.Actor != "ada" || e.Object != personID || e.Workspace.String() != workspace {
			t.Errorf("entry = %+v, want ada, the person %s and the workspace", e, personID)
		}
		if e.Before["role"] != "developer" || e.After["role"] != "viewer" {
			t.Errorf("role = %v to %v, want developer to viewer", e.Before["role"], e.After["role"])
		}
	}
	text, err := json.Marshal(entries)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), invited.member("token")) {
		t.Errorf("the audit log contains the token of the invitation: %s", text)
	}
}

func TestOperatorAPI_InvitesAndRemovesOperators(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsoleWithPasskeys()
	first := r.operator("POST", "/admin/v1/operator-invitations", "")
	wantAnswer(t, "invitation", first, http.StatusCreated, "")
	session := r.newDevice().signUp(first.member("token"), "Grace").member("token")
	personID := r.personOf(session)
	wantAnswer(t, "operator", r.visit("GET", "/admin/v1/people", session, ""), http.StatusOK, "")

	before := len(r.entriesAfter(0))
	wantAnswer(t, "last operator", r.operator("DELETE", "/admin/v1/people/"+personID+"/operator", ""),
		http.StatusConflict, "last_owner")
	wantActions(t, "a refused change", r.entriesAfter(before))
	open := r.operator("POST", "/admin/v1/operator-invitations", "")
	wantIDs(t, "invitations", r.operator("GET", "/admin/v1/operator-invitations", ""), open.member("id"),
		first.member("id"))
	wantAnswer(t, "withdrawal", r.operator("DELETE", "/admin/v1/operator-invitations/"+open.member("id"), ""),
		http.StatusOK, "")
	wantIDs(t, "invitations", r.operator("GET", "/admin/v1/operator-invitations", ""), first.member("id"))

	second := r.operator("POST", "/admin/v1/operator-invitations", "")
	wantAnswer(t, "second operator", r.newDevice().signUp(second.member("token"), "Ada"), http.StatusCreated, "")
	wantAnswer(t, "removal", r.operator("DELETE", "/admin/v1/people/"+personID+"/operator", ""), http.StatusOK, "")
	wantAnswer(t, "person without the role", r.visit("GET", "/admin/v1/people", session, ""), http.StatusForbidden,
		"forbidden")
}

func TestOperatorAPI_ListsAndEndsTheSessionsOfAPerson(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsoleWithPasskeys()
	workspace := r.workspace("")
	token, id := r.memberSession(workspace, people.Owner)
	path := "/admin/v1/people/" + id.String()
	if sessions := idsOf(t, r.operator("GET", path+"/sessions", "")); len(sessions) != 1 {
		t.Fatalf("sessions = %v, want 1", sessions)
	}
	wantAnswer(t, "session", r.visit("GET", "/console/v1/me", token, ""), http.StatusOK, "")
	wantAnswer(t, "sign-out", r.operator("DELETE", path+"/sessions", ""), http.StatusOK, "")
	wantIDs(t, "sessions after the sign-out", r.operator("GET", path+"/sessions", ""))
	wantAnswer(t, "ended session", r.newConsoleVisit("GET", "/console/v1/me", token), http.StatusUnauthorized,
		"invalid_session")
	recovery := r.operator("POST", path+"/recovery", "")
	wantAnswer(t, "recovery", recovery, http.StatusCreated, "")
	wantAnswer(t, "sign-up", r.newDevice().signUp(recovery.member("token"), ""), http.StatusCreated, "")
}

// newConsoleVisit sends a request to another replica, whose cache does not contain the session.
func (r *rig) newConsoleVisit(method, path, token string) answered {
	r.t.Helper()
	return send(r.t, method, r.newConsole().URL+path, token, "", nil)
}

// The ids of members and invitations belong to one workspace. In the path of another workspace they
// do not exist, and a request with them changes nothing.
func TestOperatorAPI_PeopleOfAnotherWorkspaceAreNotFound(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	other, workspace := r.foreignWorkspace(), r.workspace("")
	before, unknown := r.peopleState(), uuid.NewString()
	for _, row := range []struct{ method, path, body string }{
		{"GET", "/members/" + other.memberID.String(), ""},
		{"PATCH", "/members/" + other.memberID.String(), `{"role":"viewer"}`},
		{"DELETE", "/members/" + other.memberID.String(), ""},
		{"GET", "/invitations/" + other.invitation, ""},
		{"DELETE", "/invitations/" + other.invitation, ""},
	} {
		inOther := r.operator(row.method, "/admin/v1/workspaces/"+workspace+row.path, row.body)
		wantAnswer(t, row.method+" "+row.path, inOther, http.StatusNotFound, "not_found")
		nowhere := r.operator(row.method, "/admin/v1/workspaces/"+unknown+row.path, row.body)
		wantAnswer(t, row.method+" in an unknown workspace", nowhere, http.StatusNotFound, "not_found")
	}
	for _, path := range []string{"/members", "/invitations"} {
		wantIDs(t, path, r.operator("GET", "/admin/v1/workspaces/"+workspace+path, ""))
	}
	for _, path := range []string{
		"/people/" + unknown, "/people/" + unknown + "/sessions", "/people/x", "/operator-invitations/" + other.invitation,
	} {
		wantAnswer(t, "GET "+path, r.operator("GET", "/admin/v1"+path, ""), http.StatusNotFound, "not_found")
	}
	for _, path := range []string{
		"/people/" + unknown + "/sessions", "/people/" + unknown + "/operator",
		"/operator-invitations/" + other.invitation,
	} {
		wantAnswer(t, "DELETE "+path, r.operator("DELETE", "/admin/v1"+path, ""), http.StatusNotFound, "not_found")
	}
	wantAnswer(t, "recovery", r.operator("POST", "/admin/v1/people/"+unknown+"/recovery", ""), http.StatusNotFound,
		"not_found")
	if after := r.peopleState(); after != before {
		t.Errorf("a refused request changed something:\n before %s\n after  %s", before, after)
	}
	wantAnswer(t, "role of an operator", r.operator("POST", "/admin/v1/workspaces/"+workspace+"/invitations",
		`{"role":"operator"}`), http.StatusUnprocessableEntity, "validation_error")
	if after := r.peopleState(); after != before {
		t.Errorf("an invalid role changed something:\n before %s\n after  %s", before, after)
	}
}
