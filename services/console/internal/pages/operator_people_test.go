package pages

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"ringfence.dev/services/console/internal/gateway"
)

const (
	personPage = "/operator/people/" + agentID
	personPath = "/console/v1/people/" + agentID
)

func setPerson(s site, role string) {
	member := map[string]any{"workspace_id": workspaceID, "workspace_name": hostile, "role": role}
	if role == gateway.Operator {
		member = map[string]any{"role": role}
	}
	s.set("GET "+personPath, map[string]any{"id": agentID, "name": "Grace <b>", "email": "grace@example.com",
		"memberships": []any{member}})
}

func TestPeople_AreListedWithTheirRoles(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	s.set("GET /console/v1/people", map[string]any{"data": []any{map[string]any{"id": agentID, "name": hostile}},
		"has_more": true})
	w := s.get("/operator/people")
	wantStatus(t, w, http.StatusOK)
	wantBody(t, w, `href="`+personPage+`"`)
	wantBody(t, w, "starting_after="+agentID)
	if strings.Contains(w.Body.String(), "<script>alert") {
		t.Error("the page contains a script of the API")
	}
	setPerson(s, gateway.Viewer)
	w = s.get(personPage)
	wantBody(t, w, "/w/"+workspaceID+"/members")
	wantBody(t, w, "Viewer")
	if strings.Contains(w.Body.String(), "remove-operator") {
		t.Error("the page offers to remove a role that the person does not have")
	}
}

func TestPeople_OperatorEndsSessionsAndCreatesLinks(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	setPerson(s, gateway.Operator)
	wantHeader(t, s.submit(personPage+"/sign-out", url.Values{}), "Location", personPage+"?done=person_signed_out")
	if sent := s.sent(personPath + "/sessions"); len(sent) != 1 || sent[0].Method != http.MethodDelete {
		t.Errorf("requests to end sessions = %v, want one DELETE", sent)
	}
	made := map[string]any{"token": "rfi_abc", "url": nil, "expires_at": "2026-06-04T09:00:00.000Z"}
	s.set("POST "+personPath+"/recovery", made)
	s.set("POST /console/v1/operator-invitations", made)
	for _, path := range []string{personPage + "/recovery", "/operator/people/invite"} {
		w := s.submit(path, url.Values{})
		wantStatus(t, w, http.StatusOK)
		wantBody(t, w, address+"/invitations/rfi_abc")
	}
	made["url"] = "https://other.example.com/invitations/rfi_abc"
	wantBody(t, s.submit("/operator/people/invite", url.Values{}), "https://other.example.com/invitations/rfi_abc")
}

func TestPeople_OperatorRoleIsRemovedOnlyIfTheNameWasTyped(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	setPerson(s, gateway.Operator)
	wantHeader(t, s.submit(personPage+"/remove-operator", url.Values{"confirmation": {"Grace"}, "reason": {"x"}}),
		"Location", personPage+"?done=not_confirmed")
	if sent := s.sent(personPath + "/operator"); len(sent) != 0 {
		t.Fatalf("removals without the typed name = %d, want 0", len(sent))
	}
	wantHeader(t, s.submit(personPage+"/remove-operator", url.Values{"confirmation": {"Grace <b>"}, "reason": {"x"}}),
		"Location", personPage+"?done=operator_removed")
	if sent := s.sent(personPath + "/operator"); len(sent) != 1 || sent[0].Method != http.MethodDelete {
		t.Errorf("removals = %v, want one DELETE", sent)
	}
}

func TestOperatorInvitations_AreListedAndWithdrawn(t *testing.T) {
	t.Parallel()
	const path, accepted, recovery = "/console/v1/operator-invitations", "01a218cb-00ad-7433-a772-00000000000a",
		"01a218cb-00ad-7433-a772-00000000000b"
	s := newSite(t, gateway.Operator)
	invitation := func(id string, members map[string]any) map[string]any {
		made := map[string]any{"id": id, "role": "operator", "invited_by": "local <b>", "created_at": updatedAt,
			"expires_at": "2099-06-04T09:00:00.000Z", "accepted_at": nil, "person_id": nil}
		maps.Copy(made, members)
		return made
	}
	s.set("GET "+path, map[string]any{"data": []any{invitation(agentID, nil),
		invitation(accepted, map[string]any{"accepted_at": updatedAt}),
		invitation(recovery, map[string]any{"role": nil, "person_id": workspaceID, "expires_at": updatedAt})},
		"has_more": true})
	w := s.get("/operator/invitations")
	wantStatus(t, w, http.StatusOK)
	for _, want := range []string{"Open", "Accepted", "Expired", "local &lt;b&gt;",
		`href="/operator/people/` + workspaceID, "starting_after=" + recovery,
		"/operator/invitations/" + agentID + "/withdraw"} {
		wantBody(t, w, want)
	}
	if strings.Contains(w.Body.String(), accepted+"/withdraw") {
		t.Error("the page offers to withdraw an accepted invitation")
	}
	page := "/operator/invitations/" + agentID + "/withdraw"
	wantHeader(t, s.submit(page, url.Values{}), "Location", "/operator/invitations?done=not_confirmed")
	wantEqual(t, "withdrawals without a reason", s.sentBy("DELETE", path+"/"+agentID), 0)
	wantHeader(t, s.submit(page, url.Values{"reason": {"Wrong person"}}), "Location",
		"/operator/invitations?done=invitation_withdrawn")
	sent := s.sent(path + "/" + agentID)
	if len(sent) != 1 {
		t.Fatalf("withdrawals = %d, want 1", len(sent))
	}
	wantEqual(t, "reason", sent[0].Header.Get("Ringfence-Reason"), "Wrong person")
}
