package pages

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/services/console/internal/gateway"
)

const (
	home   = "/w/" + workspaceID
	admin  = "/admin/v1/workspaces/" + workspaceID
	itemID = "019e91dc-5b90-7d05-a1f4-55ab3c9d7e21"
)

// post submits a form.
func (s site) post(path string, fields ...string) *httptest.ResponseRecorder {
	form := url.Values{}
	for i := 0; i+1 < len(fields); i += 2 {
		form.Add(fields[i], fields[i+1])
	}
	return s.do(s.request("POST", path, form))
}

// sentBy returns the number of requests with a method and a path.
func (s site) sentBy(method, path string) (count int) {
	for _, r := range s.sent(path) {
		if r.Method == method {
			count++
		}
	}
	return count
}

func wantEqual[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func TestKeys_NewKeyIsShownOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Developer)
	s.set("POST "+admin+"/api-keys", map[string]any{"id": itemID, "key": "rf_live_secret", "access": "read"})
	w := s.post(home+"/integrations/api-keys", "name", " Shop <b> ", "access", "read")
	wantStatus(t, w, http.StatusOK)
	wantBody(t, w, "rf_live_secret")
	wantBody(t, w, "Shop &lt;b&gt;")
	wantHeader(t, w, "Cache-Control", "no-store")
	wantEqual(t, "body", s.body(admin+"/api-keys"), `{"access":"read","name":"Shop \u003cb\u003e"}`)
}

func TestKeys_RefusedNameIsShownInTheForm(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Developer)
	s.set("POST "+admin+"/api-keys", refusal{status: 422, code: "validation_error", message: "name must be shorter."})
	w := s.post(home+"/integrations/api-keys", "name", "Shop", "access", "read")
	wantStatus(t, w, http.StatusUnprocessableEntity)
	wantBody(t, w, "name must be shorter.")
	wantBody(t, w, `value="Shop"`)
	wantBody(t, w, `<option value="read" selected>`)
}

func TestKeys_ErrorForAnOldSignInLinksToTheSignInPage(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	s.set("POST "+admin+"/api-keys", refusal{status: 403, code: "recent_sign_in_required"})
	r := s.request("POST", home+"/integrations/api-keys", url.Values{"name": {"Shop"}})
	r.Header.Set("Referer", address+home+"/integrations/api-keys")
	w := s.do(r)
	wantStatus(t, w, http.StatusForbidden)
	wantBody(t, w, "/sign-in?again=1&next="+strings.ReplaceAll(home+"/integrations/api-keys", "/", "%2f"))
}

func TestKeys_FormShowsThatTheSignInIsTooOld(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		until time.Time
		want  bool
	}{
		{name: "recent", until: time.Now().Add(time.Minute)},
		{name: "old", until: time.Now().Add(-time.Minute), want: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, gateway.Operator)
			s.set("GET /console/v1/me", map[string]any{"person": map[string]any{"id": workspaceID, "name": "Ada"},
				"operator": true, "session": map[string]any{"recent_until": tt.until.UTC().Format(time.RFC3339)}})
			w := s.get(home + "/integrations/api-keys")
			wantEqual(t, "note", strings.Contains(w.Body.String(), "/sign-in?again=1"), tt.want)
		})
	}
}

func TestKeys_KeyIsRevokedOnlyIfItsPrefixWasTyped(t *testing.T) {
	t.Parallel()
	const prefix, key = "rf_live_01020304", admin + "/api-keys/" + itemID
	for typed, want := range map[string]int{"": 0, "Shop": 0, "rf_live_0102030": 0, prefix: 1, " " + prefix + " ": 1} {
		s := newSite(t, gateway.Developer)
		s.set("GET "+key, map[string]any{"id": itemID, "name": "Shop", "prefix": prefix})
		w := s.post(home+"/integrations/api-keys/"+itemID+"/revoke", "confirmation", typed, "reason", "x")
		wantStatus(t, w, http.StatusSeeOther)
		wantEqual(t, "revocations after "+typed, s.sentBy("DELETE", key), want)
	}
}

func TestKeys_RevokedKeyHasNoRevokeButton(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Developer)
	s.set("GET "+admin+"/api-keys", map[string]any{"data": []any{map[string]any{"id": itemID, "name": "Shop",
		"prefix": "rf_live_1", "access": "read", "created_at": "2026-06-04T09:00:00.000Z",
		"revoked_at": "2026-06-05T09:00:00.000Z"}}})
	w := s.get(home + "/integrations/api-keys")
	wantBody(t, w, "Revoked")
	wantEqual(t, "dialog", strings.Contains(w.Body.String(), "data-match"), false)
}

func TestMembers_InvitationLinkUsesTheAddressOfTheConsole(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		url  any
		want string
	}{
		{name: "gateway returns a URL", url: "https://x.example.com/invitations/a",
			want: "https://x.example.com/invitations/a"},
		{name: "gateway returns no URL", want: address + "/invitations/rfi_a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, gateway.Owner)
			s.set("POST "+invitationsPath, map[string]any{"id": itemID, "role": "viewer", "token": "rfi_a", "url": tt.url})
			w := s.post(home+"/members/invitations", "role", "viewer")
			wantStatus(t, w, http.StatusOK)
			wantBody(t, w, ">"+tt.want+"<")
			wantEqual(t, "body", s.body(invitationsPath), `{"role":"viewer"}`)
		})
	}
}

// An operator is no member, so the name of the workspace is not in the memberships.
func TestMembers_LinkPageShowsOperatorsTheNameOfTheWorkspace(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	s.set("POST "+invitationsPath, map[string]any{"id": itemID, "role": "viewer", "token": "rfi_a"})
	w := s.post(home+"/members/invitations", "role", "viewer")
	wantStatus(t, w, http.StatusOK)
	wantBody(t, w, `<span class="who"><b>Demo</b>`)
	wantEqual(t, "id as a name", strings.Contains(w.Body.String(), "<b>"+workspaceID), false)
}

func TestMembers_PageSaysThatViewersChangeNothing(t *testing.T) {
	t.Parallel()
	for language, want := range map[string]string{"en": "May look, may not change anything.",
		"de": "Darf ansehen, aber nichts ändern."} {
		s := newSite(t, gateway.Owner)
		r := s.request("GET", home+"/members", nil)
		r.Header.Set("Accept-Language", language)
		wantBody(t, s.do(r), want)
	}
}

func TestMembers_OnlyOwnersSeeControls(t *testing.T) {
	t.Parallel()
	for role, want := range map[string]bool{gateway.Owner: true, gateway.Operator: true, gateway.Developer: false,
		gateway.Viewer: false} {
		s := newSite(t, role)
		s.set("GET "+membersPath, map[string]any{"data": []any{map[string]any{"id": itemID, "name": "Grace", "role": "viewer",
			"created_at": "2026-06-04T09:00:00.000Z"}}})
		w := s.get(home + "/members")
		wantStatus(t, w, http.StatusOK)
		wantBody(t, w, "Grace")
		wantEqual(t, role+" sees controls", strings.Contains(w.Body.String(), "/members/"+itemID), want)
		wantEqual(t, role+" reads invitations", len(s.sent(invitationsPath)) > 0, want)
	}
}

func TestMembers_AcceptedInvitationsAreNotPending(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	s.set("GET "+invitationsPath, map[string]any{"data": []any{
		map[string]any{"id": itemID, "role": "viewer", "expires_at": "2026-06-04T09:00:00.000Z"},
		map[string]any{"id": workspaceID, "role": "owner", "accepted_at": "2026-06-04T09:00:00.000Z"},
	}})
	w := s.get(home + "/members")
	wantBody(t, w, `id="invitation-`+itemID)
	wantBody(t, w, "expired")
	wantEqual(t, "accepted one", strings.Contains(w.Body.String(), `id="invitation-`+workspaceID), false)
}

func TestMembers_ActionsAreSentToTheGateway(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	s.set("GET "+membersPath, map[string]any{"data": []any{map[string]any{"id": itemID, "role": "viewer",
		"etag": `"viewer"`}}})
	s.set("GET "+membersPath+"/"+itemID, tagged{etag: `"viewer"`})
	wantBody(t, s.get(home+"/members"), `name="version" value="&#34;viewer&#34;"`)
	w := s.post(home+"/members/"+itemID+"/role", "role", "developer", "version", `"compliance"`)
	wantHeader(t, w, "Location", home+"/members?done=role_changed_before")
	w = s.post(home+"/members/"+itemID+"/role", "role", "developer", "version", `"viewer"`)
	wantHeader(t, w, "Location", home+"/members?done=role_changed")
	wantEqual(t, "body", s.body(membersPath+"/"+itemID), `{"role":"developer"}`)
	wantHeader(t, s.post(home+"/members/"+itemID+"/remove", "reason", "x"), "Location",
		home+"/members?done=member_removed")
	wantEqual(t, "removals", s.sentBy("DELETE", membersPath+"/"+itemID), 1)
	wantHeader(t, s.post(home+"/members/"+workspaceID+"/remove", "reason", "x"), "Location",
		"/workspaces?done=member_removed")
	s.post(home + "/members/invitations/" + itemID + "/delete")
	wantEqual(t, "deletions", s.sentBy("DELETE", invitationsPath+"/"+itemID), 1)
	s.set("DELETE "+membersPath+"/"+itemID, refusal{status: 409, message: "Give another person the role."})
	w = s.post(home+"/members/"+itemID+"/remove", "reason", "x")
	wantStatus(t, w, http.StatusConflict)
	wantBody(t, w, "Give another person the role.")
}

func TestAudit_SendsTheFiltersAndEscapesHTMLInValues(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Compliance)
	s.set("GET /v1/audit", map[string]any{"has_more": true, "data": []any{map[string]any{"id": itemID,
		"at": "2026-06-04T09:00:00.000Z", "actor_type": "user", "actor_id": workspaceID, "actor_name": "<script>x",
		"action": "opt_out.create", "object_type": "opt_out", "object_id": "+14155550101", "request_id": itemID,
		"before": nil, "after": map[string]any{"dnd_status": "</pre><script>y"}}}})
	w := s.get(home + "/audit?object_type=opt_out&object_id=%2B1+415+555+0101&actor_id=a&created_after=2026-06-04T09:00")
	wantStatus(t, w, http.StatusOK)
	for _, tag := range []string{"<script>x", "<script>y"} {
		wantEqual(t, tag, strings.Contains(w.Body.String(), tag), false)
	}
	wantBody(t, w, "Number opted out")
	wantBody(t, w, `<span class="mono">`+workspaceID[:8]) // the id, because two people can have the same name
	wantBody(t, w, home+"/why?phone=%2B14155550101")
	wantBody(t, w, "starting_after="+itemID)
	query := s.sent("/v1/audit")[0].URL.Query()
	want := url.Values{"object_type": {"opt_out"}, "object_id": {"+14155550101"}, "actor_id": {"a"},
		"created_after": {"2026-06-04T09:00:00Z"}, "limit": {"50"}}
	if diff := cmp.Diff(want, query); diff != "" {
		t.Errorf("parameters differ (-want +got):\n%s", diff)
	}
}

func TestContacts_SearchFindsNamesAndNumbers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]url.Values{
		"Ada":             {"q": {"Ada"}},
		"4711":            {"q": {"4711"}},
		"(415) 555-0101":  {"phone": {"+4155550101"}},
		"+1 415 555 0101": {"phone": {"+14155550101"}},
		"0014155550101":   {"phone": {"+14155550101"}},
		"%_":              {"q": {"%_"}},
	} {
		s := newSite(t, gateway.Viewer)
		wantStatus(t, s.get(home+"/contacts?q="+url.QueryEscape(text)), http.StatusOK)
		want.Set("limit", "50")
		if diff := cmp.Diff(want, s.sent(contactsPath)[0].URL.Query()); diff != "" {
			t.Errorf("%s: parameters differ (-want +got):\n%s", text, diff)
		}
	}
}

func setContact(s site) {
	s.set("GET "+contactsPath+"/"+itemID, map[string]any{"id": itemID, "phone_e164": "+14155550101", "name": "Ada",
		"external_id": "4711", "variables": map[string]any{}, "metadata": map[string]any{"tier": "gold", "n": 1},
		"dnd_status": "unknown", "consent_status": "unknown", "created_at": "2026-06-04T09:00:00.000Z",
		"updated_at": "2026-06-04T09:00:00.000Z"})
}

// Another program can change the contact while a person edits it. Fields that the person did not
// change are not sent.
func TestContact_EditSendsChangedFieldsOnly(t *testing.T) {
	t.Parallel()
	was := []string{"was_name", "Ada", "was_external_id", "4711", "was_metadata", "{\"tier\": \"gold\",\r\n\"n\": [1, 2]}"}
	tests := []struct {
		name   string
		fields []string
		want   string
	}{
		{name: "nothing", fields: []string{"name", "Ada", "external_id", "4711", "metadata", `{"n":[1,2],"tier":"gold"}`},
			want: `{}`},
		{name: "a name", fields: []string{"name", "Ada King", "external_id", "4711", "metadata", `{"tier":"gold","n":[1,2]}`},
			want: `{"name":"Ada King"}`},
		{name: "cleared fields", fields: []string{"name", "", "external_id", "", "metadata", ""},
			want: `{"name":null,"external_id":null,"metadata":{"n":null,"tier":null}}`},
		{name: "metadata", fields: []string{"name", "Ada", "external_id", "4711", "metadata", `{"tier":"silver","x":true}`},
			want: `{"metadata":{"n":null,"tier":"silver","x":true}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, gateway.Owner)
			setContact(s)
			w := s.post(home+"/contacts/"+itemID, append(tt.fields, was...)...)
			wantHeader(t, w, "Location", home+"/contacts/"+itemID+"?done=contact_changed")
			wantEqual(t, "body", s.body(contactsPath+"/"+itemID), tt.want)
		})
	}
}

func TestContact_RefusedEditKeepsTheSubmittedValues(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	setContact(s)
	for _, metadata := range []string{"[1]", "null", "{", `"x"`, "{} {}"} {
		w := s.post(home+"/contacts/"+itemID, "name", "Grace", "metadata", metadata)
		wantStatus(t, w, http.StatusUnprocessableEntity)
		wantBody(t, w, "The metadata must be a JSON object.")
		wantBody(t, w, `value="Grace"`)
	}
	wantEqual(t, "changes", s.sentBy("PATCH", contactsPath+"/"+itemID), 0)
}

func TestContact_IsErasedOnlyIfTheNumberWasTyped(t *testing.T) {
	t.Parallel()
	const path = admin + "/contacts/+14155550101"
	for typed, want := range map[string]int{"": 0, "+1415555010": 0, "14155550101": 0, "+14155550101": 1} {
		s := newSite(t, gateway.Compliance)
		setContact(s)
		wantStatus(t, s.post(home+"/contacts/"+itemID+"/erase", "confirmation", typed, "reason", "x"), http.StatusSeeOther)
		wantEqual(t, "erasures after "+typed, s.sentBy("DELETE", path), want)
	}
}

func TestContact_ControlsDependOnTheRole(t *testing.T) {
	t.Parallel()
	tests := []struct {
		role                string
		edit, erase, number bool
	}{
		{role: gateway.Viewer}, {role: gateway.Developer, edit: true, number: true},
		{role: gateway.Compliance, edit: true, erase: true, number: true},
		{role: gateway.Operator, edit: true, erase: true, number: true},
	}
	for _, tt := range tests {
		t.Run(tt.role, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, tt.role)
			setContact(s)
			w := s.get(home + "/contacts/" + itemID)
			wantStatus(t, w, http.StatusOK)
			wantEqual(t, "edit", strings.Contains(w.Body.String(), `name="was_name"`), tt.edit)
			wantEqual(t, "erase", strings.Contains(w.Body.String(), "/erase"), tt.erase)
			wantEqual(t, "whole number", strings.Contains(w.Body.String(), "4155550101"), tt.number)
		})
	}
}

func TestNewContact_KnownNumberShowsALinkToTheExistingContact(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	s.set("POST "+contactsPath, refusal{status: 409, code: "contact_exists", message: "exists"})
	s.set("GET "+contactsPath, map[string]any{"data": []any{map[string]any{"id": itemID}}})
	w := s.post(home+"/contacts/new", "phone", "+1 415 555 0101", "name", "Ada")
	wantStatus(t, w, http.StatusConflict)
	wantBody(t, w, home+"/contacts/"+itemID)
	wantBody(t, w, `value="Ada"`)
}

func TestOptOuts_OptOutIsAddedAndRemoved(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Compliance)
	page := home + "/opt-outs?"
	number := url.Values{"phone": {"+14155550101"}}
	w := s.post(home+"/opt-outs", "phone", "+1 415 555 0101", "reason", "Asked by <mail>")
	wantHeader(t, w, "Location", page+"done=opted_out&"+number.Encode())
	wantEqual(t, "body", s.body(optOutsPath), `{"phone_e164":"+14155550101","reason":"Asked by \u003cmail\u003e"}`)

	path := optOutsPath + "/+14155550101"
	w = s.post(home+"/opt-outs/remove", "phone", "+14155550101", "confirmation", "+14155550102", "reason", "x")
	wantHeader(t, w, "Location", page+"done=not_confirmed&"+number.Encode())
	wantEqual(t, "deletions", s.sentBy("DELETE", path), 0)
	w = s.post(home+"/opt-outs/remove", "phone", "+14155550101", "confirmation", "+14155550101", "reason", "x")
	wantHeader(t, w, "Location", page+"done=opt_out_removed&"+number.Encode())
	wantEqual(t, "deletions", s.sentBy("DELETE", path), 1)
}

func TestOptOuts_SearchShowsTheStateOfANumber(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, role string
		response   any
		text       string
		status     int
		remove     bool
	}{
		{name: "opted out", role: gateway.Owner, response: map[string]any{"phone_e164": "+14155550101", "dnd_status": "dnd"},
			text: "This number is opted out.", status: 200, remove: true},
		{name: "for a developer", role: gateway.Developer,
			response: map[string]any{"phone_e164": "+14155550101", "dnd_status": "dnd"}, text: "This number is opted out.",
			status: 200},
		{name: "clean", role: gateway.Viewer, response: map[string]any{"phone_e164": "+14155550101", "dnd_status": "clean"},
			text: "This number is not opted out.", status: 200},
		{name: "unknown", role: gateway.Viewer, response: refusal{status: 404, code: "not_found"},
			text: "This workspace has no contact with this number.", status: 200},
		{name: "malformed", role: gateway.Viewer, response: refusal{status: 422, message: "must be E.164"},
			text: "must be E.164", status: 422},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, tt.role)
			s.set("GET "+optOutsPath+"/+14155550101", tt.response)
			w := s.get(home + "/opt-outs?phone=%2B14155550101")
			wantStatus(t, w, tt.status)
			wantBody(t, w, tt.text)
			wantEqual(t, "dialog", strings.Contains(w.Body.String(), `id="remove"`), tt.remove)
		})
	}
}

// upload sends a list as a browser does.
func (s site) upload(t *testing.T, reason string, content []byte) *httptest.ResponseRecorder {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	if err := form.WriteField("reason", reason); err != nil {
		t.Fatal(err)
	}
	if content != nil {
		file, err := form.CreateFormFile("file", "list.csv")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	r := s.request("POST", home+"/opt-outs/imports", url.Values{})
	upload := httptest.NewRequest("POST", address+home+"/opt-outs/imports", &body)
	upload.Header = r.Header.Clone()
	upload.Header.Set("Content-Type", form.FormDataContentType())
	return s.do(upload)
}

func TestImport_FileIsSentInParts(t *testing.T) {
	t.Parallel()
	const imports = admin + "/opt-out-imports"
	for _, size := range []int{1, importPart - 1, importPart, importPart + 1, 5*importPart + 7} {
		s := newSite(t, gateway.Compliance)
		s.set("POST "+imports, map[string]any{"id": itemID, "status": "receiving"})
		s.set("POST "+imports+"/"+itemID+"/start", map[string]any{"id": itemID, "status": "reading"})
		content := bytes.Repeat([]byte("+14155550101\n"), size/13+1)[:size]
		w := s.upload(t, "National list", content)
		wantHeader(t, w, "Location", home+"/opt-outs/imports/"+itemID+"?done=import_started")
		wantEqual(t, "body", s.body(imports), `{"reason":"National list"}`)
		var got strings.Builder
		s.mu.Lock()
		for i, r := range s.requests {
			if r.Method == "PUT" {
				got.WriteString(s.bodies[i])
			}
		}
		s.mu.Unlock()
		if got.String() != string(content) {
			t.Errorf("parts of a file of %d bytes have %d bytes, or another order", size, got.Len())
		}
		wantEqual(t, "starts", s.sentBy("POST", imports+"/"+itemID+"/start"), 1)
		wantEqual(t, "first part", s.sentBy("PUT", imports+"/"+itemID+"/parts/1"), 1)
	}
}

func TestImport_UnusableFilesStartNoImport(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		content []byte
		status  int
		text    string
	}{
		{name: "no file", status: 422, text: "The file is missing or empty"},
		{name: "empty", content: []byte{}, status: 422, text: "The file is missing or empty"},
		{name: "large", content: make([]byte, maxUpload), status: 413, text: "The file is too large"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, gateway.Compliance)
			w := s.upload(t, "x", tt.content)
			wantStatus(t, w, tt.status)
			wantBody(t, w, tt.text)
			wantEqual(t, "imports", s.sentBy("POST", admin+"/opt-out-imports"), 0)
		})
	}
}

// Only an upload to the import route may exceed maxForm.
func TestImport_RefusesFormsThatAreNotUploads(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Compliance)
	wantStatus(t, s.post(home+"/opt-outs/imports", "reason", "x"), http.StatusUnprocessableEntity)
	s.post(home+"/opt-outs", "phone", "+14155550101", "reason", strings.Repeat("x", maxForm+1))
	wantEqual(t, "opt-outs", strings.Contains(s.body(optOutsPath), "+14155550101"), false)
}

func TestImport_PageShowsProgressAndFaults(t *testing.T) {
	t.Parallel()
	for status, polls := range map[string]bool{"receiving": false, "reading": true, "applying": true, "done": false} {
		s := newSite(t, gateway.Compliance)
		s.set("GET "+admin+"/opt-out-imports/"+itemID, map[string]any{"id": itemID, "status": status, "numbers": 4,
			"applied": 2, "bad": 1, "bad_rows": []any{map[string]any{"line": 1006, "value": "<b>4155", "reason": "not E.164"}},
			"actor": "operator:Ada", "created_at": "2026-06-04T09:00:00.000Z", "updated_at": "2026-06-04T09:00:00.000Z"})
		w := s.get(home + "/opt-outs/imports/" + itemID)
		wantStatus(t, w, http.StatusOK)
		wantBody(t, w, "1,006")
		wantBody(t, w, "&lt;b&gt;4155")
		wantBody(t, w, "2 / 4")
		wantEqual(t, status+" polls", strings.Contains(w.Body.String(), "hx-trigger"), polls)
	}
}

// Every part of the pages is rendered, in both languages and for the role with the most controls.
func TestPeoplePages_RenderWithCompleteData(t *testing.T) {
	t.Parallel()
	const at = "2026-06-04T09:00:00.000Z"
	s := newSite(t, gateway.Operator)
	setContact(s)
	list := func(item map[string]any) map[string]any {
		return map[string]any{"has_more": true, "data": []any{item}}
	}
	contact := map[string]any{"id": itemID, "phone_e164": "+14155550101", "name": "Ada", "external_id": "4711",
		"dnd_status": "dnd", "consent_status": "withdrawn", "created_at": at, "updated_at": at}
	s.set("GET "+contactsPath, list(contact))
	s.set("GET "+admin+"/consent-records", list(map[string]any{"id": itemID, "kind": "consent_granted",
		"source": "web form", "reason": "<b>asked", "evidence": map[string]any{"form": 7}, "occurred_at": at}))
	s.set("GET "+admin+"/erasures", list(map[string]any{"id": itemID, "requested_at": at, "services": []any{
		map[string]any{"service": "calls", "steps": 2, "open": 1}, map[string]any{"service": "webhooks", "done_at": at}}}))
	s.set("GET "+optOutsPath+"/+14155550101", map[string]any{"phone_e164": "+14155550101", "dnd_status": "dnd"})
	s.set("GET "+admin+"/opt-out-imports", list(map[string]any{"id": itemID, "status": "done", "numbers": 1, "bad": 2000,
		"reason": "National list", "created_at": at}))
	s.set("GET "+admin+"/opt-out-imports/"+itemID, map[string]any{"id": itemID, "status": "done", "numbers": 1200,
		"applied": 1200, "same_as": workspaceID, "reason": "National list", "actor": "operator:person:" + workspaceID,
		"created_at": at, "done_at": at})
	s.set("GET "+membersPath, list(map[string]any{"id": workspaceID, "name": "Ada", "email": "ada@example.com",
		"role": "owner", "from_groups": true, "created_at": at}))
	s.set("GET "+invitationsPath, list(map[string]any{"id": itemID, "role": "viewer", "invited_by": "person:" + itemID,
		"expires_at": "2999-06-04T09:00:00.000Z"}))
	s.set("GET "+admin+"/api-keys", list(map[string]any{"id": itemID, "name": "Shop", "prefix": "rf_live_1",
		"access": "read", "created_at": at}))
	s.set("GET "+admin, map[string]any{"id": workspaceID, "name": "Demo", "calling_policy": map[string]any{
		"packs": []any{"us", "gb:service"}, "timezone": "Asia/Tokyo",
		"window":   map[string]any{"start": "00:00", "end": "24:00", "days": []any{"mon"}},
		"override": map[string]any{"reason": "Support line", "operator": "Ada"}}})
	s.set("GET "+admin+"/contacts/+14155550101/preview", map[string]any{"may_be_called": true,
		"rules": []any{map[string]any{"pack": "us", "region": "US-FL"}}})
	tests := []struct{ path, en, de string }{
		{path: "/contacts", en: "Opted out", de: "Abgemeldet"},
		{path: "/contacts/new", en: "Create the contact", de: "Kontakt erzeugen"},
		{path: "/contacts/" + itemID, en: "calls: 1 step open", de: "webhooks: fertig"},
		{path: "/opt-outs?phone=%2B14155550101", en: "1 number · 2,000 faults", de: "1 Rufnummer · 2.000 Fehler"},
		{path: "/opt-outs/imports/" + itemID, en: "An earlier import had the same numbers.", de: "Gesendet von"},
		{path: "/members", en: "from a group of the sign-in provider", de: "von Person 019e91dc"},
		{path: "/integrations/api-keys", en: "Type rf_live_1 to confirm", de: "Schlüssel Shop widerrufen"},
		{path: "/calling-hours", en: "“Support line” by Ada", de: "us, gb:service"},
		{path: "/calling-hours?phone=%2B14155550101", en: "uses the time zone Asia/Tokyo. The grid does not show it.",
			de: "US-FL"},
	}
	for _, tt := range tests {
		for language, want := range map[string]string{"en": tt.en, "de": tt.de} {
			r := s.request("GET", home+tt.path, nil)
			r.AddCookie(&http.Cookie{Name: s.server.cookies.language, Value: language})
			w := s.do(r)
			wantStatus(t, w, http.StatusOK)
			wantBody(t, w, want)
		}
	}
}

func TestNavigation_LeavesOutPagesThatTheRoleCannotRead(t *testing.T) {
	t.Parallel()
	for role, want := range map[string][2]bool{gateway.Viewer: {false, false}, gateway.Compliance: {false, true},
		gateway.Developer: {true, true}} {
		w := newSite(t, role).get(home + "/members")
		wantEqual(t, role+" sees API keys", strings.Contains(w.Body.String(), home+"/integrations/api-keys"), want[0])
		wantEqual(t, role+" sees the audit", strings.Contains(w.Body.String(), home+"/audit"), want[1])
	}
}
