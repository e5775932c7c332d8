package httpapi_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/services/gateway/internal/people"
)

// recorded is an entry of the audit log as the database stores it.
type recorded struct {
	Action, Actor, Object string
	Workspace             *uuid.UUID
	Before, After         map[string]any
}

// entriesAfter returns the audit entries after the first n entries, oldest first.
func (r *rig) entriesAfter(n int) []recorded {
	r.t.Helper()
	rows, err := r.pool.Query(r.t.Context(), `SELECT action, actor_id AS actor, object_id AS object,
		workspace_id AS workspace, before, after FROM audit_entries ORDER BY uuid_send(id) OFFSET $1`, n)
	if err != nil {
		r.t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[recorded])
	if err != nil {
		r.t.Fatal(err)
	}
	return found
}

func actionsOf(entries []recorded) (actions []string) {
	for _, e := range entries {
		actions = append(actions, e.Action)
	}
	return actions
}

func wantActions(t *testing.T, what string, entries []recorded, want ...string) {
	t.Helper()
	got := actionsOf(entries)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("%s: actions = %v, want %v", what, got, want)
	}
}

// personOf returns the id of the person to whom a session token belongs.
func (r *rig) personOf(token string) string {
	r.t.Helper()
	var me struct{ Person struct{ ID string } }
	if err := json.Unmarshal([]byte(r.visit("GET", "/console/v1/me", token, "").body), &me); err != nil {
		r.t.Fatal(err)
	}
	return me.Person.ID
}

func TestAudit_RecordsSignInCodesAndSignIns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	personID := r.personOf(r.operatorSession())
	entries := r.entriesAfter(0)
	wantActions(t, "code and sign-in", entries, "sign_in_code.create", "session.create")
	if e := entries[0]; e.Actor != "gateway sign-in-code" || e.Object != personID {
		t.Errorf("entry of the command = %+v, want the person %s", e, personID)
	}
	if e := entries[1]; e.Actor != personID || e.After["method"] != "code" {
		t.Errorf("entry of the sign-in = %+v, want the person %s and the method code", e, personID)
	}
	wantAnswer(t, "wrong code", r.visit("POST", "/console/v1/sign-in/code", "", `{"code":"AAAA"}`),
		http.StatusUnauthorized, "invalid_code")
	wantActions(t, "a wrong code", r.entriesAfter(len(entries)))
}

func TestAudit_RecordsAnInvitationFromTheCommandLine(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	token := people.NewInvitationToken()
	if err := r.store.InviteByCommand(t.Context(), "gateway invite-operator", people.HashSecret(token)); err != nil {
		t.Fatal(err)
	}
	entries := r.entriesAfter(0)
	wantActions(t, "invitation", entries, "operator_invitation.create")
	invitation, err := r.store.OpenInvitation(t.Context(), people.HashSecret(token))
	if err != nil {
		t.Fatal(err)
	}
	if e := entries[0]; e.Actor != "gateway invite-operator" || e.Object != invitation.ID.String() {
		t.Errorf("entry = %+v, want the invitation %s of the command", e, invitation.ID)
	}
}

func TestAudit_AcceptedInvitationsAndRecoveriesAreListed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsoleWithPasskeys()
	workspace, operator := r.workspace(""), r.operatorSession()
	invited := r.visitIn(workspace, "POST", "/console/v1/invitations", operator, `{"role":"developer"}`)
	before := len(r.entriesAfter(0))
	personID := r.personOf(r.newDevice().signUp(invited.member("token"), "Grace").member("token"))
	entries := r.entriesAfter(before)
	wantActions(t, "sign-up", entries, "invitation.accept", "session.create")
	e := entries[0]
	if e.Actor != personID || e.Object != invited.member("id") || e.Workspace == nil || e.Workspace.String() != workspace {
		t.Errorf("entry = %+v, want the person %s and the invitation %s", e, personID, invited.member("id"))
	}
	if e.After["role"] != "developer" {
		t.Errorf("role = %v, want developer", e.After["role"])
	}
	listed := r.visitIn(workspace, "GET", "/console/v1/invitations", operator, "")
	var page struct {
		Data []struct {
			AcceptedBy string `json:"accepted_by"`
		}
	}
	if err := json.Unmarshal([]byte(listed.body), &page); err != nil || len(page.Data) != 1 {
		t.Fatalf("invitations = %s: %v", listed.body, err)
	}
	if got := page.Data[0].AcceptedBy; got != personID {
		t.Errorf("accepted_by = %q, want %s", got, personID)
	}

	recovery := r.visit("POST", "/console/v1/people/"+personID+"/recovery", operator, "")
	before = len(r.entriesAfter(0))
	wantAnswer(t, "recovery", r.newDevice().signUp(recovery.member("token"), ""), http.StatusCreated, "")
	entries = r.entriesAfter(before)
	wantActions(t, "recovery", entries, "recovery.accept", "session.create")
	if e := entries[0]; e.Actor != personID || e.After["person_id"] != personID {
		t.Errorf("entry = %+v, want the person %s", e, personID)
	}
}

func TestAudit_RecordsRolesFromProviderGroups(t *testing.T) {
	t.Parallel()
	r, p := newRig(t), newProvider(t)
	workspace := r.workspace("")
	id := uuid.MustParse(workspace)
	r.newConsoleWithProvider(p, people.GroupRole{Group: "ops", Role: people.Operator},
		people.GroupRole{Group: "dev", Role: people.Developer, WorkspaceID: &id},
		people.GroupRole{Group: "law", Role: people.Compliance, WorkspaceID: &id})
	var personID string
	signIn := func(what string, groups []string, want ...string) []recorded {
		before := len(r.entriesAfter(0))
		made := r.signInAt(p, map[string]any{"sub": "u1", "name": "Grace", "groups": groups}, "")
		if made.status == http.StatusCreated {
			personID = r.personOf(made.member("token"))
		}
		entries := r.entriesAfter(before)
		wantActions(t, what, entries, want...)
		return entries
	}
	given := signIn("first sign-in", []string{"ops", "dev"}, "operator.create", "member.create", "session.create")
	for _, e := range given {
		if e.Action == "member.create" && (e.Object != personID || *e.Workspace != id || e.After["role"] != "developer") {
			t.Errorf("entry = %+v, want the role developer of %s", e, personID)
		}
	}
	signIn("same groups", []string{"ops", "dev"}, "session.create")
	changed := signIn("other group", []string{"ops", "law"}, "member.update", "session.create")
	if e := changed[0]; e.Before["role"] != "developer" || e.After["role"] != "compliance" {
		t.Errorf("entry = %+v, want developer before and compliance after", e)
	}
	signIn("no operator", []string{"law"}, "operator.delete", "session.create")
	signIn("refused", nil)
}

func TestAudit_SignInThatCannotBeRecordedIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	code := people.NewCode()
	if err := r.store.AddLocalCode(t.Context(), people.HashCode(code)); err != nil {
		t.Fatal(err)
	}
	r.pgOwner(`ALTER TABLE audit_entries ADD CHECK (action <> 'session.create') NOT VALID`)
	made := r.visit("POST", "/console/v1/sign-in/code", "", `{"code":"`+code+`"}`)
	if made.status != http.StatusInternalServerError {
		t.Errorf("sign-in = %d %s, want 500", made.status, made.body)
	}
	if n := r.count("sessions"); n != 0 {
		t.Errorf("sessions = %d, want 0", n)
	}
}
