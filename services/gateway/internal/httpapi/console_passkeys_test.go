package httpapi_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/descope/virtualwebauthn"

	"ringfence.dev/services/gateway/internal/httpapi"
	"ringfence.dev/services/gateway/internal/people"
)

// device is a virtual authenticator with one passkey.
type device struct {
	r             *rig
	site          virtualwebauthn.RelyingParty
	authenticator virtualwebauthn.Authenticator
	credential    virtualwebauthn.Credential
}

func (r *rig) newDevice() *device {
	return &device{
		r: r, site: virtualwebauthn.RelyingParty{Name: "Ringfence", ID: "console.example.com",
			Origin: r.consoleURL().String()},
		authenticator: virtualwebauthn.NewAuthenticator(),
		credential:    virtualwebauthn.NewCredential(virtualwebauthn.KeyTypeEC2),
	}
}

func (r *rig) newConsoleWithPasskeys() {
	r.t.Helper()
	config := r.consoleConfig()
	config.URL = r.consoleURL()
	var err error
	if config.Passkeys, err = people.NewPasskeys(config.URL); err != nil {
		r.t.Fatal(err)
	}
	r.console = httptest.NewServer(httpapi.NewConsole(config, nil))
	r.t.Cleanup(r.console.Close)
}

type startedPasskey struct {
	Attempt string
	Options json.RawMessage
}

func (d *device) started(made answered) (started startedPasskey) {
	d.r.t.Helper()
	if made.status != http.StatusCreated {
		d.r.t.Fatalf("start = %d %s, want 201", made.status, made.body)
	}
	if err := json.Unmarshal([]byte(made.body), &started); err != nil {
		d.r.t.Fatal(err)
	}
	return started
}

// create returns the request body that finishes a registration.
func (d *device) create(started startedPasskey) string {
	d.r.t.Helper()
	options, err := virtualwebauthn.ParseAttestationOptions(string(started.Options))
	if err != nil {
		d.r.t.Fatal(err)
	}
	var person struct {
		PublicKey struct{ User struct{ ID string } }
	}
	if err := json.Unmarshal(started.Options, &person); err != nil {
		d.r.t.Fatal(err)
	}
	if d.authenticator.Options.UserHandle, err = base64.RawURLEncoding.DecodeString(person.PublicKey.User.ID); err != nil {
		d.r.t.Fatal(err)
	}
	credential := virtualwebauthn.CreateAttestationResponse(d.site, d.authenticator, d.credential, *options)
	d.authenticator.AddCredential(d.credential)
	return `{"attempt":"` + started.Attempt + `","name":"Laptop","credential":` + credential + `}`
}

// get returns the request body that finishes a sign-in.
func (d *device) get(started startedPasskey) string {
	d.r.t.Helper()
	options, err := virtualwebauthn.ParseAssertionOptions(string(started.Options))
	if err != nil {
		d.r.t.Fatal(err)
	}
	d.credential.Counter++
	credential := virtualwebauthn.CreateAssertionResponse(d.site, d.authenticator, d.credential, *options)
	return `{"attempt":"` + started.Attempt + `","credential":` + credential + `}`
}

func (d *device) signUp(invitation, name string) answered {
	d.r.t.Helper()
	started := d.started(d.r.visit("POST", "/console/v1/sign-in/registration/start", "",
		`{"invitation":"`+invitation+`","name":"`+name+`"}`))
	return d.r.visit("POST", "/console/v1/sign-in/registration/finish", "", d.create(started))
}

func (d *device) signIn() answered {
	d.r.t.Helper()
	started := d.started(d.r.visit("POST", "/console/v1/sign-in/passkey/start", "", ""))
	return d.r.visit("POST", "/console/v1/sign-in/passkey/finish", "", d.get(started))
}

// invite returns the token of an invitation to a workspace.
func (r *rig) invite(workspaceID, session string, role people.Role) string {
	r.t.Helper()
	made := r.visitIn(workspaceID, "POST", "/console/v1/invitations", session, `{"role":"`+string(role)+`"}`)
	if made.status != http.StatusCreated {
		r.t.Fatalf("POST invitations = %d %s, want 201", made.status, made.body)
	}
	return made.member("token")
}

func TestConsole_InvitedPersonSignsInWithAPasskey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsoleWithPasskeys()
	workspace, operator := r.workspace(""), r.operatorSession()
	invited := r.visitIn(workspace, "POST", "/console/v1/invitations", operator, `{"role":"owner"}`)
	wantAnswer(t, "POST invitations", invited, http.StatusCreated, "")
	token := invited.member("token")
	if got, want := invited.member("url"), "https://console.example.com/invitations/"+token; got != want {
		t.Errorf("url = %q, want %q", got, want)
	}
	shown := r.visit("POST", "/console/v1/sign-in/invitation", "", `{"invitation":"`+token+`"}`)
	wantAnswer(t, "read the invitation", shown, http.StatusOK, "")
	if !strings.Contains(shown.body, `"workspace_name":"Acme"`) || !strings.Contains(shown.body, `"role":"owner"`) {
		t.Errorf("invitation = %s, want the workspace and the role", shown.body)
	}

	grace := r.newDevice()
	signedUp := grace.signUp(token, "Grace")
	wantAnswer(t, "sign-up", signedUp, http.StatusCreated, "")
	wantAnswer(t, "GET calls", r.visitIn(workspace, "GET", "/v1/calls", signedUp.member("token"), ""), http.StatusOK, "")
	signedIn := grace.signIn()
	wantAnswer(t, "sign-in", signedIn, http.StatusCreated, "")
	wantAnswer(t, "GET calls", r.visitIn(workspace, "GET", "/v1/calls", signedIn.member("token"), ""), http.StatusOK, "")

	wantAnswer(t, "invitation used twice", r.visit("POST", "/console/v1/sign-in/registration/start", "",
		`{"invitation":"`+token+`","name":"Mallory"}`), http.StatusNotFound, "not_found")
	listed := r.visitIn(workspace, "GET", "/console/v1/invitations", operator, "")
	if strings.Contains(listed.body, "rfi_") || strings.Contains(listed.body, `"accepted_at":null`) {
		t.Errorf("invitations = %s, want one accepted invitation without its token", listed.body)
	}
}

func TestConsole_PasskeyRefusesForgedResponses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsoleWithPasskeys()
	workspace, operator := r.workspace(""), r.operatorSession()
	grace := r.newDevice()
	wantAnswer(t, "sign-up", grace.signUp(r.invite(workspace, operator, people.Owner), "Grace"), http.StatusCreated, "")
	start := func() startedPasskey {
		return grace.started(r.visit("POST", "/console/v1/sign-in/passkey/start", "", ""))
	}
	finish := func(body string) answered { return r.visit("POST", "/console/v1/sign-in/passkey/finish", "", body) }

	phished := *grace
	phished.site.Origin = "https://console.example.com.evil.example"
	wantAnswer(t, "other origin", finish(phished.get(start())), http.StatusUnauthorized, "sign_in_refused")

	unverified := *grace
	unverified.authenticator.Options.UserNotVerified = true
	wantAnswer(t, "without user verification", finish(unverified.get(start())), http.StatusUnauthorized, "sign_in_refused")

	unregistered := *grace
	unregistered.credential = virtualwebauthn.NewCredential(virtualwebauthn.KeyTypeEC2)
	wantAnswer(t, "unknown passkey", finish(unregistered.get(start())), http.StatusUnauthorized, "sign_in_refused")

	first, second := start(), start()
	body := strings.Replace(grace.get(first), first.Attempt, second.Attempt, 1)
	wantAnswer(t, "challenge of another sign-in", finish(body), http.StatusUnauthorized, "sign_in_refused")

	wantAnswer(t, "sign-in", grace.signIn(), http.StatusCreated, "")
	copied := *grace
	copied.credential.Counter = 0
	wantAnswer(t, "copied passkey", finish(copied.get(start())), http.StatusUnauthorized, "sign_in_refused")

	replayed := start()
	body = grace.get(replayed)
	wantAnswer(t, "first use", finish(body), http.StatusCreated, "")
	wantAnswer(t, "replayed response", finish(body), http.StatusUnauthorized, "sign_in_expired")
}

func TestConsole_PersonAddsAndDeletesPasskeys(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsoleWithPasskeys()
	workspace, operator := r.workspace(""), r.operatorSession()
	laptop, phone := r.newDevice(), r.newDevice()
	session := laptop.signUp(r.invite(workspace, operator, people.Viewer), "Grace").member("token")
	list := func() (keys []struct{ ID, Name string }) {
		var page struct{ Data []struct{ ID, Name string } }
		if err := json.Unmarshal([]byte(r.visit("GET", "/console/v1/passkeys", session, "").body), &page); err != nil {
			t.Fatal(err)
		}
		return page.Data
	}
	first := list()
	if len(first) != 1 {
		t.Fatalf("passkeys = %v, want one", first)
	}
	wantAnswer(t, "delete the last one", r.visit("DELETE", "/console/v1/passkeys/"+first[0].ID, session, ""),
		http.StatusConflict, "last_passkey")
	started := phone.started(r.visit("POST", "/console/v1/passkeys/start", session, ""))
	body := phone.create(started)
	wantAnswer(t, "finish as another person", r.visit("POST", "/console/v1/passkeys/finish", operator, body),
		http.StatusNotFound, "not_found")
	started = phone.started(r.visit("POST", "/console/v1/passkeys/start", session, ""))
	wantAnswer(t, "finish", r.visit("POST", "/console/v1/passkeys/finish", session, phone.create(started)),
		http.StatusNoContent, "")
	wantAnswer(t, "sign in with the second passkey", phone.signIn(), http.StatusCreated, "")
	wantAnswer(t, "delete the first one", r.visit("DELETE", "/console/v1/passkeys/"+first[0].ID, session, ""),
		http.StatusNoContent, "")
	wantAnswer(t, "sign in with the deleted passkey", laptop.signIn(), http.StatusUnauthorized, "sign_in_refused")
	r.exec(`UPDATE sessions SET authenticated_at = authenticated_at - interval '15 minutes'`)
	wantAnswer(t, "old sign-in", r.visit("POST", "/console/v1/passkeys/start", session, ""), http.StatusForbidden,
		"recent_sign_in_required")
}

func TestConsole_RecoveryLinkReplacesALostPasskey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsoleWithPasskeys()
	workspace, operator := r.workspace(""), r.operatorSession()
	lost, found := r.newDevice(), r.newDevice()
	session := lost.signUp(r.invite(workspace, operator, people.Developer), "Grace").member("token")
	var me struct{ Person struct{ ID string } }
	if err := json.Unmarshal([]byte(r.visit("GET", "/console/v1/me", session, "").body), &me); err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, "recovery by a member", r.visit("POST", "/console/v1/people/"+me.Person.ID+"/recovery", session, ""),
		http.StatusForbidden, "forbidden")
	recovery := r.visit("POST", "/console/v1/people/"+me.Person.ID+"/recovery", operator, "")
	wantAnswer(t, "recovery by an operator", recovery, http.StatusCreated, "")
	wantAnswer(t, "accept as another person", r.visit("POST", "/console/v1/invitations/accept", operator,
		`{"invitation":"`+recovery.member("token")+`"}`), http.StatusNotFound, "not_found")

	recovered := found.signUp(recovery.member("token"), "")
	wantAnswer(t, "new passkey", recovered, http.StatusCreated, "")
	again := r.visit("GET", "/console/v1/me", recovered.member("token"), "")
	if !strings.Contains(again.body, me.Person.ID) || !strings.Contains(again.body, `"role":"developer"`) {
		t.Errorf("me = %s, want the same person with the same role", again.body)
	}
	wantAnswer(t, "old session", r.visit("GET", "/console/v1/me", session, ""), http.StatusUnauthorized, "invalid_session")
	wantAnswer(t, "lost passkey", lost.signIn(), http.StatusUnauthorized, "sign_in_refused")
}

func TestConsole_SignedInPersonAcceptsAnInvitation(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsoleWithPasskeys()
	workspace, other, operator := r.workspace(""), r.workspace(""), r.operatorSession()
	session, _ := r.memberSession(workspace, people.Owner)
	accept := func(token string) answered {
		return r.visit("POST", "/console/v1/invitations/accept", session, `{"invitation":"`+token+`"}`)
	}
	wantAnswer(t, "accept", accept(r.invite(other, operator, people.Viewer)), http.StatusOK, "")
	next := r.visitIn(other, "GET", "/v1/calls", session, "")
	wantAnswer(t, "GET calls", next, http.StatusOK, "")
	session = next.header.Get("Ringfence-Session")
	if !people.IsSessionToken(session) {
		t.Fatal("the token was not replaced after the new role")
	}
	wantAnswer(t, "a viewer cannot invite",
		r.visitIn(other, "POST", "/console/v1/invitations", session, `{"role":"owner"}`),
		http.StatusForbidden, "forbidden")
	wantAnswer(t, "second invitation does not change the role", accept(r.invite(other, operator, people.Owner)),
		http.StatusConflict, "already_member")

	withdrawn := r.visitIn(other, "POST", "/console/v1/invitations", operator, `{"role":"viewer"}`)
	wantAnswer(t, "withdraw", r.visitIn(other, "DELETE", "/console/v1/invitations/"+withdrawn.member("id"), operator, ""),
		http.StatusNoContent, "")
	wantAnswer(t, "withdrawn invitation", accept(withdrawn.member("token")), http.StatusNotFound, "not_found")
	expired := r.invite(other, operator, people.Viewer)
	r.exec(`UPDATE invitations SET expires_at = now()`)
	wantAnswer(t, "expired invitation", accept(expired), http.StatusNotFound, "not_found")
	wantAnswer(t, "role operator", r.visitIn(other, "POST", "/console/v1/invitations", operator, `{"role":"operator"}`),
		http.StatusUnprocessableEntity, "validation_error")
}

func TestConsole_OperatorsListAndWithdrawInvitations(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsoleWithPasskeys()
	workspace, operator := r.workspace(""), r.operatorSession()
	owner, ownerID := r.memberSession(workspace, people.Owner)
	const path = "/console/v1/operator-invitations"
	ofWorkspace := r.visitIn(workspace, "POST", "/console/v1/invitations", operator, `{"role":"viewer"}`)
	invited := r.visit("POST", path, operator, "")
	recovery := r.visit("POST", "/console/v1/people/"+ownerID.String()+"/recovery", operator, "")

	listed := r.visit("GET", path, operator, "")
	wantAnswer(t, "list", listed, http.StatusOK, "")
	for id, want := range map[string]bool{invited.member("id"): true, recovery.member("id"): true,
		ofWorkspace.member("id"): false} {
		if got := strings.Contains(listed.body, id); got != want {
			t.Errorf("invitations contain %s: %t, want %t", id, got, want)
		}
	}
	if strings.Contains(listed.body, "rfi_") {
		t.Errorf("invitations = %s, want no token", listed.body)
	}
	wantAnswer(t, "list of an owner", r.visit("GET", path, owner, ""), http.StatusForbidden, "forbidden")
	second := r.visit("GET", path+"?limit=1&starting_after="+recovery.member("id"), operator, "")
	if !strings.Contains(second.body, invited.member("id")) || !strings.Contains(second.body, `"has_more":false`) {
		t.Errorf("second page = %s, want the invitation %s", second.body, invited.member("id"))
	}

	wantAnswer(t, "withdraw as an owner", r.visit("DELETE", path+"/"+invited.member("id"), owner, ""),
		http.StatusForbidden, "forbidden")
	wantAnswer(t, "withdraw the invitation of a workspace",
		r.visit("DELETE", path+"/"+ofWorkspace.member("id"), operator, ""), http.StatusNotFound, "not_found")
	wantAnswer(t, "withdraw as the invitation of a workspace", r.visitIn(workspace, "DELETE",
		"/console/v1/invitations/"+invited.member("id"), operator, ""), http.StatusNotFound, "not_found")
	for _, made := range []answered{invited, recovery} {
		before := len(r.entriesAfter(0))
		wantAnswer(t, "withdraw", r.visit("DELETE", path+"/"+made.member("id"), operator, ""), http.StatusNoContent, "")
		wantAnswer(t, "read", r.visit("POST", "/console/v1/sign-in/invitation", "",
			`{"invitation":"`+made.member("token")+`"}`), http.StatusNotFound, "not_found")
		entries := r.entriesAfter(before)
		wantActions(t, "withdraw", entries, "operator_invitation.delete")
		if got := entries[0].Before["id"]; got != made.member("id") {
			t.Errorf("state before = %v, want the invitation %s", entries[0].Before, made.member("id"))
		}
	}
	wantAnswer(t, "withdraw again", r.visit("DELETE", path+"/"+invited.member("id"), operator, ""),
		http.StatusNotFound, "not_found")
}
