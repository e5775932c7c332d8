package httpapi_test

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/gateway/internal/auth"
	"ringfence.dev/services/gateway/internal/httpapi"
	"ringfence.dev/services/gateway/internal/people"
	"ringfence.dev/services/gateway/internal/proxy"
)

func (r *rig) consoleConfig() httpapi.ConsoleConfig {
	r.t.Helper()
	ready, err := httpapi.NewReadiness(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	docs, err := httpapi.NewDocs()
	if err != nil {
		r.t.Fatal(err)
	}
	return httpapi.ConsoleConfig{
		Auth: auth.New(r.store, r.pepper, nil), Store: r.store, Peers: r.peers, Pepper: r.pepper, Ready: ready,
		Docs: docs, Codes: true,
	}
}

// newConsole starts the console listener of another replica of the gateway.
func (r *rig) newConsole() *httptest.Server {
	r.t.Helper()
	server := httptest.NewServer(httpapi.NewConsole(r.consoleConfig(), nil))
	r.t.Cleanup(server.Close)
	if r.console == nil {
		r.console = server
	}
	return server
}

// operatorSession signs in as the operator of the local stack.
func (r *rig) operatorSession() string {
	r.t.Helper()
	code := people.NewCode()
	if err := r.store.AddLocalCode(r.t.Context(), people.HashCode(code)); err != nil {
		r.t.Fatal(err)
	}
	made := r.visit("POST", "/console/v1/sign-in/code", "", `{"code":"`+strings.ToLower(code)+`"}`)
	if made.status != http.StatusCreated {
		r.t.Fatalf("POST sign-in/code = %d %s, want 201", made.status, made.body)
	}
	return made.member("token")
}

// memberSession creates a person with a role in a workspace, and signs the person in.
func (r *rig) memberSession(workspaceID string, role people.Role) (token string, personID uuid.UUID) {
	r.t.Helper()
	id, err := uuid.NewV7()
	if err != nil {
		r.t.Fatal(err)
	}
	token = people.NewSessionToken()
	hash := people.HashSecret(token)
	r.exec(`INSERT INTO people (id, name) VALUES ($1, 'Grace')`, id)
	if workspaceID != "" {
		r.exec(`INSERT INTO memberships (person_id, workspace_id, role) VALUES ($1, $2, $3)`, id, workspaceID, role)
	}
	r.exec(`INSERT INTO sessions (id, hash, person_id, method) VALUES (gen_random_uuid(), $1, $2, 'passkey')`, hash[:], id)
	return token, id
}

func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	if _, err := r.pool.Exec(r.t.Context(), sql, args...); err != nil {
		r.t.Fatal(err)
	}
}

// visit sends a request to the console listener without a workspace.
func (r *rig) visit(method, path, token, body string) answered {
	r.t.Helper()
	return send(r.t, method, r.console.URL+path, token, body, nil)
}

// visitIn sends a request to the console listener in a workspace.
func (r *rig) visitIn(workspaceID, method, path, token, body string) answered {
	r.t.Helper()
	return send(r.t, method, r.console.URL+path, token, body, http.Header{"Ringfence-Workspace": {workspaceID}})
}

func wantAnswer(t *testing.T, what string, got answered, status int, code string) {
	t.Helper()
	if got.status != status {
		t.Errorf("%s: status = %d, want %d; body = %s", what, got.status, status, got.body)
	}
	if got.code() != code {
		t.Errorf("%s: code = %q, want %q", what, got.code(), code)
	}
}

func TestConsole_AcceptsSessionTokensOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	workspace := r.workspace("")
	key, _ := r.key(workspace, "write")
	session := r.operatorSession()

	wantAnswer(t, "session", r.visit("GET", "/admin/v1/workspaces", session, ""), http.StatusOK, "")
	for name, secret := range map[string]string{"API key": key, "operator token": operatorToken, "no token": "",
		"unknown session": people.NewSessionToken()} {
		wantAnswer(t, name, r.visitIn(workspace, "GET", "/v1/calls", secret, ""), http.StatusUnauthorized, "invalid_session")
		wantAnswer(t, name, r.visit("GET", "/admin/v1/workspaces", secret, ""), http.StatusUnauthorized, "invalid_session")
	}
	wantAnswer(t, "session on the public listener", r.customer("GET", "/v1/calls", session, ""),
		http.StatusUnauthorized, "invalid_api_key")
	wantAnswer(t, "session on the admin listener", send(t, "GET", r.admin.URL+"/admin/v1/workspaces", session, "", nil),
		http.StatusUnauthorized, "invalid_api_key")
	wantAnswer(t, "console route on the public listener", r.customer("GET", "/console/v1/me", key, ""),
		http.StatusNotFound, "not_found")
}

func TestConsole_StoresOnlyHashesOfTokens(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	token := r.operatorSession()
	if len(token) != len("rfs_")+52 || !strings.HasPrefix(token, "rfs_") {
		t.Errorf("token = %q, want rfs_ and 52 characters, which encode 256 bits", token)
	}
	var hash []byte
	if err := r.pool.QueryRow(t.Context(), `SELECT hash FROM sessions`).Scan(&hash); err != nil {
		t.Fatal(err)
	}
	if want := people.HashSecret(token); !want.Equal(hash) {
		t.Errorf("stored hash = %x, want %x", hash, want)
	}
}

var placeholders = regexp.MustCompile(`\{[^}]*\}`)

// samplePath returns a path that matches a template.
func samplePath(template string) string {
	path := placeholders.ReplaceAllString(template, "0190c2a0-7b2c-7c3e-8f00-aabbccddeeff")
	return strings.Replace(path, "*", "x", 1)
}

// ownerRoutes returns the routes of the operator API that other services serve. It reads them from
// the source files of the routers.
func ownerRoutes(t *testing.T) (routes [][2]string) {
	t.Helper()
	direct := regexp.MustCompile(`r(?:outer)?(?:\.With\([^)]*\))?\.(Get|Post|Put|Patch|Delete)\("([^"]*)"`)
	group := regexp.MustCompile(`\.Route\("(/[^"]*)"`)
	// The dialer serves GET and PUT of each dialing route.
	dialing := regexp.MustCompile(`^\t\t"(/admin/v1/[^"]*dialing)": `)
	for _, file := range []string{"calls/internal/httpapi/routes.go", "contacts-compliance/internal/httpapi/httpapi.go",
		"dialer/internal/httpapi/routes.go", "billing-wallet/internal/httpapi/routes.go",
		"webhook-dispatcher/internal/httpapi/routes.go"} {
		text, err := os.ReadFile("../../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		found, prefix := 0, ""
		for line := range strings.Lines(string(text)) {
			if match := group.FindStringSubmatch(line); match != nil {
				prefix = match[1]
			} else if strings.HasPrefix(line, "\t})") {
				prefix = ""
			}
			if match := dialing.FindStringSubmatch(line); match != nil {
				routes = append(routes, [2]string{"GET", match[1]}, [2]string{"PUT", match[1]})
			}
			for _, match := range direct.FindAllStringSubmatch(line, -1) {
				path := strings.TrimSuffix(prefix+match[2], "/")
				if strings.HasPrefix(path, "/admin/v1/") {
					routes = append(routes, [2]string{strings.ToUpper(match[1]), path})
					found++
				}
			}
		}
		if found == 0 {
			t.Errorf("%s has no route of the operator API", file)
		}
	}
	return routes
}

// genericRoute matches the routes that the gateway forwards by pattern. ownerRoutes returns these
// routes in full.
var genericRoute = regexp.MustCompile(`\{collection\}|/admin/v1/(dialer|dialing|trunks)`)

func TestConsole_RoleTableHasEveryRoute(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	routes := ownerRoutes(t)
	for _, table := range []proxy.Table{proxy.Public(), proxy.Open()} {
		for _, route := range table {
			for _, method := range route.Methods {
				routes = append(routes, [2]string{method, route.Template})
			}
		}
	}
	err := httpapi.ConsoleRoutes(r.consoleConfig(), func(method, template string) {
		if !genericRoute.MatchString(template) {
			routes = append(routes, [2]string{method, template})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var used []string
	for _, route := range routes {
		method, path := route[0], samplePath(route[1])
		if path == "/readyz" { // /readyz needs no session
			continue
		}
		template, found := httpapi.FindConsoleRule(method, path)
		if !found {
			t.Errorf("%s %s is not in the table of routes and roles", method, route[1])
		}
		used = append(used, method+" "+template)
	}
	for _, rule := range httpapi.ConsoleRules() {
		if !slices.Contains(used, rule.Method+" "+rule.Template) {
			t.Errorf("%s %s is in the table of routes and roles, but no service has this route", rule.Method, rule.Template)
		}
	}
	if len(routes) < 100 {
		t.Errorf("routes = %d, want at least 100", len(routes))
	}
}

func TestConsole_PermitsOnlyTheRolesOfTheRoleTable(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	workspace, other := r.workspace(""), r.workspace("")
	sessions := map[people.Role]string{}
	for _, role := range people.WorkspaceRoles() {
		sessions[role], _ = r.memberSession(workspace, role)
	}
	otherOwner, _ := r.memberSession(other, people.Owner)
	for _, rule := range httpapi.ConsoleRules() {
		if !rule.InHeader && !rule.InPath && !rule.OfSystem {
			continue // every person may use the route
		}
		path := strings.Replace(rule.Template, "/workspaces/{id}", "/workspaces/"+workspace, 1)
		path = samplePath(path)
		for role, token := range sessions {
			got := r.visitIn(workspace, rule.Method, path, token, "")
			if refused := got.code() == "forbidden"; refused == slices.Contains(rule.Roles, role) {
				t.Errorf("%s: %s %s = %d %s; roles of the route: %v", role, rule.Method, path, got.status, got.body, rule.Roles)
			}
		}
		want, code := http.StatusNotFound, "not_found"
		if rule.OfSystem {
			want, code = http.StatusForbidden, "forbidden"
		}
		wantAnswer(t, "owner of another workspace: "+rule.Method+" "+path,
			r.visitIn(workspace, rule.Method, path, otherOwner, ""), want, code)
	}
}

func TestConsole_RefusesRoutesOutsideTheRoleTable(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	workspace, session := r.workspace(""), r.operatorSession()
	for _, path := range []string{"/v1/unknown", "/", "/console/v1/unknown", "/admin/v1/trunks/x/y/z",
		"/admin/v1/workspaces/" + workspace + "/calls/x/transcript", "/admin/v1/workspaces/" + workspace + "/agents/x/y",
		"/v1/calls/", "/v1//calls", "/v1/calls/..", "/v1/%63alls", "/admin/v1/workspaces/" + workspace + "/%61pi-keys"} {
		wantAnswer(t, path, r.visitIn(workspace, "GET", path, session, ""), http.StatusForbidden, "forbidden")
	}
	wantAnswer(t, "PUT /v1/calls", r.visitIn(workspace, "PUT", "/v1/calls", session, ""), http.StatusForbidden,
		"forbidden")
	wantAnswer(t, "GET code", r.visit("GET", "/console/v1/sign-in/code", session, ""), http.StatusMethodNotAllowed,
		"method_not_allowed")
}

func TestConsole_RequestMustNameExactlyOneWorkspace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	workspace, other := r.workspace(""), r.workspace("")
	token, _ := r.memberSession(workspace, people.Owner)
	wantAnswer(t, "no header", r.visit("GET", "/v1/calls", token, ""), http.StatusUnprocessableEntity, "validation_error")
	wantAnswer(t, "not an id", r.visitIn("x", "GET", "/v1/calls", token, ""), http.StatusNotFound, "not_found")
	wantAnswer(t, "other workspace in the path",
		r.visitIn(workspace, "GET", "/admin/v1/workspaces/"+other+"/agents", token, ""),
		http.StatusUnprocessableEntity, "validation_error")
	wantAnswer(t, "not a member", r.visit("GET", "/admin/v1/workspaces/"+other+"/agents", token, ""),
		http.StatusNotFound, "not_found")
	twice := send(t, "GET", r.console.URL+"/v1/calls", token, "", http.Header{"Ringfence-Workspace": {workspace, other}})
	wantAnswer(t, "two headers", twice, http.StatusUnprocessableEntity, "validation_error")
}

func TestConsole_ForwardsTheWorkspaceAndTheRole(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	workspace := r.workspace(`"plan":"starter"`)
	token, personID := r.memberSession(workspace, people.Viewer)
	wantAnswer(t, "GET calls on the plan starter", r.visitIn(workspace, "GET", "/v1/calls?limit=3", token, ""),
		http.StatusOK, "")
	wantAnswer(t, "GET webhooks on the plan starter", r.visitIn(workspace, "GET", "/v1/webhook-subscriptions", token, ""),
		http.StatusOK, "")
	received := r.requestsTo(proxy.Calls)[0]
	if received.caller.WorkspaceID.String() != workspace {
		t.Errorf("workspace = %s, want %s", received.caller.WorkspaceID, workspace)
	}
	if received.caller.Access != "read" {
		t.Errorf("access of a viewer = %q, want read", received.caller.Access)
	}
	if got := received.header.Get("Authorization"); got != "" {
		t.Errorf("the owner of the route received Authorization: %s", got)
	}
	if received.uri != "/v1/calls?limit=3" {
		t.Errorf("uri = %s, want /v1/calls?limit=3", received.uri)
	}
	developer, developerID := r.memberSession(workspace, people.Developer)
	wantAnswer(t, "PUT dialing", r.visitIn(workspace, "PUT", "/v1/dialing", developer, `{"state":"active"}`),
		http.StatusOK, "")
	dialing := r.requestsTo(proxy.Dialer)
	if got, want := dialing[len(dialing)-1].caller.Operator, "person:"+developerID.String(); got != want {
		t.Errorf("actor of PUT dialing = %q, want %q", got, want)
	}
	if got := dialing[len(dialing)-1].caller.PersonName; got != "Grace" {
		t.Errorf("name of the person = %q, want Grace", got)
	}
	wantAnswer(t, "GET agents", r.visit("GET", "/admin/v1/workspaces/"+workspace+"/agents", token, ""), http.StatusOK, "")
	requests := r.requestsTo(proxy.Calls)
	if got, want := requests[len(requests)-1].caller.Operator, "person:"+personID.String(); got != want {
		t.Errorf("operator = %q, want %q", got, want)
	}
}

func TestConsole_AuditEntryNamesThePerson(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	workspace := r.workspace("")
	token, personID := r.memberSession(workspace, people.Owner)
	made := r.visit("POST", "/admin/v1/workspaces/"+workspace+"/api-keys", token, `{"name":"a","access":"read"}`)
	wantAnswer(t, "POST api-keys", made, http.StatusCreated, "")
	if got, want := r.audit(workspace)[0].Operator, "person:"+personID.String(); got != want {
		t.Errorf("operator in the audit log = %q, want %q", got, want)
	}
}

func TestConsole_SensitiveActionsNeedARecentSignIn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	workspace, session := r.workspace(""), r.operatorSession()
	base := "/admin/v1/workspaces/" + workspace
	actions := [][2]string{
		{"DELETE", base + "/contacts/%2B15550100"}, {"POST", base + "/api-keys"}, {"POST", "/v1/webhook-subscriptions"},
		{"POST", "/v1/webhook-subscriptions/0190c2a0-7b2c-7c3e-8f00-aabbccddeeff/rotate-secret"},
		{"POST", base + "/wallet/transactions"}, {"POST", base + "/hangup"},
	}
	for _, action := range actions {
		if got := r.visitIn(workspace, action[0], action[1], session, "{}"); got.status == http.StatusForbidden {
			t.Errorf("recent: %s %s = %d %s", action[0], action[1], got.status, got.body)
		}
	}
	r.exec(`UPDATE sessions SET authenticated_at = authenticated_at - interval '15 minutes'`)
	for _, action := range actions {
		wantAnswer(t, "old: "+action[1], r.visitIn(workspace, action[0], action[1], session, "{}"),
			http.StatusForbidden, "recent_sign_in_required")
	}
	wantAnswer(t, "old: GET agents", r.visit("GET", base+"/agents", session, ""), http.StatusOK, "")
}

func TestConsole_OperatorsMustGiveAReasonForTranscriptsAndRecordings(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	workspace, operator := r.workspace(""), r.operatorSession()
	owner, _ := r.memberSession(workspace, people.Owner)
	call := "/v1/calls/0190c2a0-7b2c-7c3e-8f00-aabbccddeeff"
	for _, path := range []string{call, call + "/transcript", call + "/recording",
		"/v1/webhook-deliveries/0190c2a0-7b2c-7c3e-8f00-aabbccddeeff"} {
		wantAnswer(t, "operator: "+path, r.visitIn(workspace, "GET", path, operator, ""),
			http.StatusUnprocessableEntity, "validation_error")
		wantAnswer(t, "operator, HEAD: "+path, r.visitIn(workspace, "HEAD", path, operator, ""),
			http.StatusUnprocessableEntity, "")
		withReason := http.Header{"Ringfence-Workspace": {workspace},
			"Ringfence-Reason": {"Beschwerde der Kundin, Fall 7: Müller"}}
		wantAnswer(t, "operator with a reason: "+path, send(t, "GET", r.console.URL+path, operator, "", withReason),
			http.StatusOK, "")
		wantAnswer(t, "owner: "+path, r.visitIn(workspace, "GET", path, owner, ""), http.StatusOK, "")
	}
}

func TestConsole_SuspendedWorkspaceCannotBeChanged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	workspace := r.workspace("")
	token, _ := r.memberSession(workspace, people.Owner)
	r.exec(`UPDATE workspaces SET status = 'suspended'`)
	wantAnswer(t, "GET", r.visitIn(workspace, "GET", "/v1/calls", token, ""), http.StatusOK, "")
	wantAnswer(t, "POST", r.visitIn(workspace, "POST", "/v1/calls", token, "{}"), http.StatusForbidden, "api_not_enabled")
}

func TestConsole_SessionExpires(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"30 minutes without use":    `UPDATE sessions SET last_used_at = last_used_at - interval '30 minutes'`,
		"12 hours after sign-in":    `UPDATE sessions SET signed_in_at = signed_in_at - interval '12 hours'`,
		"person was deleted":        `DELETE FROM people`,
		"session was revoked":       `DELETE FROM sessions`,
		"5 s after the replacement": `UPDATE sessions SET replaced_at = now() - interval '5 seconds'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.newConsole()
			token := r.operatorSession()
			wantAnswer(t, "before", r.visit("GET", "/console/v1/me", token, ""), http.StatusOK, "")
			r.exec(change)
			wantAnswer(t, "after", r.visit("GET", "/console/v1/me", token, ""), http.StatusUnauthorized, "invalid_session")
		})
	}
}

func TestConsole_EachUseProlongsTheSession(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	token := r.operatorSession()
	for range 3 {
		r.exec(`UPDATE sessions SET last_used_at = last_used_at - interval '29 minutes'`)
		wantAnswer(t, "GET me", r.visit("GET", "/console/v1/me", token, ""), http.StatusOK, "")
	}
}

func TestConsole_BackgroundRequestsDoNotProlongASession(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	token := r.operatorSession()
	r.exec(`UPDATE sessions SET last_used_at = now() - interval '29 minutes', replace = true`)
	for range 2 { // the first request must not prolong the session for the second request
		got := send(t, "GET", r.console.URL+"/console/v1/me", token, "", http.Header{"Ringfence-Background": {"true"}})
		wantAnswer(t, "background request", got, http.StatusOK, "")
		if replaced := got.header.Get("Ringfence-Session"); replaced != "" {
			t.Errorf("Ringfence-Session = %q, want no new token", replaced)
		}
		r.exec(`UPDATE sessions SET last_used_at = last_used_at - interval '30 seconds'`)
	}
	wantAnswer(
		t,
		"after 30 minutes",
		r.visit("GET", "/console/v1/me", token, ""),
		http.StatusUnauthorized,
		"invalid_session",
	)
}

func TestConsole_SignInCodeWorksOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	code := people.NewCode()
	if err := r.store.AddLocalCode(t.Context(), people.HashCode(code)); err != nil {
		t.Fatal(err)
	}
	body := `{"code":"` + code + `"}`
	wantAnswer(t, "wrong code", r.visit("POST", "/console/v1/sign-in/code", "", `{"code":"AAAA-BBBB-CCCC"}`),
		http.StatusUnauthorized, "invalid_code")
	wantAnswer(t, "first use", r.visit("POST", "/console/v1/sign-in/code", "", body), http.StatusCreated, "")
	wantAnswer(t, "second use", r.visit("POST", "/console/v1/sign-in/code", "", body), http.StatusUnauthorized,
		"invalid_code")

	config := r.consoleConfig()
	config.Codes = false
	off := httptest.NewServer(httpapi.NewConsole(config, nil))
	t.Cleanup(off.Close)
	wantAnswer(t, "codes are off", send(t, "POST", off.URL+"/console/v1/sign-in/code", "", body, nil),
		http.StatusNotFound, "not_found")
}

func TestConsole_SignInReplacesTheToken(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	old := r.operatorSession()
	code := people.NewCode()
	if err := r.store.AddLocalCode(t.Context(), people.HashCode(code)); err != nil {
		t.Fatal(err)
	}
	made := r.visit("POST", "/console/v1/sign-in/code", old, `{"code":"`+code+`"}`)
	wantAnswer(t, "sign-in with a session", made, http.StatusCreated, "")
	wantAnswer(t, "old token", r.visit("GET", "/console/v1/me", old, ""), http.StatusUnauthorized, "invalid_session")
	wantAnswer(t, "new token", r.visit("GET", "/console/v1/me", made.member("token"), ""), http.StatusOK, "")
}

func TestConsole_RoleChangeReplacesTheToken(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	workspace := r.workspace("")
	owner, _ := r.memberSession(workspace, people.Owner)
	old, personID := r.memberSession(workspace, people.Viewer)
	r.exec(`UPDATE sessions SET authenticated_at = now() - interval '1 hour' WHERE person_id = $1`, personID)
	member := "/console/v1/members/" + personID.String()
	wantAnswer(t, "PATCH member", r.visitIn(workspace, "PATCH", member, owner, `{"role":"developer"}`), http.StatusOK, "")

	replaced := r.visitIn(workspace, "GET", "/v1/calls", old, "")
	wantAnswer(t, "first request after the change", replaced, http.StatusOK, "")
	next := replaced.header.Get("Ringfence-Session")
	if !people.IsSessionToken(next) {
		t.Fatalf("Ringfence-Session = %q, want a new token", next)
	}
	concurrent := r.visitIn(workspace, "POST", "/v1/calls", old, "{}")
	wantAnswer(t, "concurrent request with the old token", concurrent, http.StatusOK, "")
	if got := concurrent.header.Get("Ringfence-Session"); got != "" {
		t.Errorf("the old token was replaced twice: Ringfence-Session = %q", got)
	}
	r.exec(`UPDATE sessions SET replaced_at = replaced_at - interval '5 seconds'`)
	wantAnswer(t, "old token", r.visit("GET", "/console/v1/me", old, ""), http.StatusUnauthorized, "invalid_session")
	wantAnswer(t, "new token", r.visit("GET", "/console/v1/me", next, ""), http.StatusOK, "")
	wantAnswer(t, "the replacement is no sign-in",
		r.visit("POST", "/admin/v1/workspaces/"+workspace+"/api-keys", next, `{"name":"a","access":"read"}`),
		http.StatusForbidden, "recent_sign_in_required")

	wantAnswer(t, "DELETE member", r.visitIn(workspace, "DELETE", member, owner, ""), http.StatusNoContent, "")
	wantAnswer(t, "removed member", r.visitIn(workspace, "GET", "/v1/calls", next, ""), http.StatusNotFound, "not_found")
}

func TestConsole_LastOwnerAndLastOperatorCannotBeRemoved(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	workspace, operator := r.workspace(""), r.operatorSession()
	_, ownerID := r.memberSession(workspace, people.Owner)
	member := "/console/v1/members/" + ownerID.String()
	wantAnswer(t, "demote", r.visitIn(workspace, "PATCH", member, operator, `{"role":"viewer"}`), http.StatusConflict,
		"last_owner")
	wantAnswer(t, "remove", r.visitIn(workspace, "DELETE", member, operator, ""), http.StatusConflict, "last_owner")
	wantAnswer(t, "role operator", r.visitIn(workspace, "PATCH", member, operator, `{"role":"operator"}`),
		http.StatusUnprocessableEntity, "validation_error")
	var operatorID uuid.UUID
	if err := r.pool.QueryRow(t.Context(),
		`SELECT person_id FROM memberships WHERE role = 'operator'`).Scan(&operatorID); err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, "last operator", r.visit("DELETE", "/console/v1/people/"+operatorID.String()+"/operator", operator, ""),
		http.StatusConflict, "last_owner")
}

func TestConsole_SignOutIsEffectiveOnEveryReplica(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	second := r.newConsole()
	workspace := r.workspace("")
	token, personID := r.memberSession(workspace, people.Owner)
	secondToken := people.NewSessionToken()
	hash := people.HashSecret(secondToken)
	r.exec(`INSERT INTO sessions (id, hash, person_id, method) VALUES (gen_random_uuid(), $1, $2, 'passkey')`,
		hash[:], personID)
	on2 := func(token string) answered { return send(t, "GET", second.URL+"/console/v1/me", token, "", nil) }

	wantAnswer(t, "second replica", on2(token), http.StatusOK, "")
	wantAnswer(t, "sign out", r.visit("DELETE", "/console/v1/sessions/current", token, ""), http.StatusNoContent, "")
	wantAnswer(t, "second replica after the sign-out", on2(token), http.StatusUnauthorized, "invalid_session")
	wantAnswer(t, "other session", on2(secondToken), http.StatusOK, "")

	third := r.operatorSession()
	wantAnswer(t, "operator ends all sessions",
		r.visit("DELETE", "/console/v1/people/"+personID.String()+"/sessions", third, ""),
		http.StatusNoContent, "")
	wantAnswer(t, "other session", on2(secondToken), http.StatusUnauthorized, "invalid_session")
	wantAnswer(t, "sign out everywhere", r.visit("DELETE", "/console/v1/sessions", third, ""), http.StatusNoContent, "")
	wantAnswer(t, "operator", on2(third), http.StatusUnauthorized, "invalid_session")
}

// maxRevocation is the longest time after which a revoked session or key can still be used.
const maxRevocation = 5 * time.Second

func TestConsole_RevocationClosesOpenStreams(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"sign-out":       `DELETE FROM sessions WHERE person_id = $1`,
		"removed member": `DELETE FROM memberships WHERE person_id = $1`,
		"other role":     `UPDATE memberships SET role = 'developer' WHERE person_id = $1`,
		"idle session":   `UPDATE sessions SET last_used_at = now() - interval '30 minutes' WHERE person_id = $1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.newConsole()
			workspace := r.workspace("")
			token, personID := r.memberSession(workspace, people.Viewer)
			ended := make(chan struct{})
			r.answers(func(w http.ResponseWriter, _ receivedRequest) bool {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: 1\n")
				_ = http.NewResponseController(w).Flush()
				<-ended
				return true
			})
			defer close(ended)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.console.URL+"/v1/calls", nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Authorization", "Bearer "+token)
			request.Header.Set("Ringfence-Workspace", workspace)
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			reader := bufio.NewReader(response.Body)
			if line, err := reader.ReadString('\n'); line != "data: 1\n" {
				t.Fatalf("first line = %q, error = %v", line, err)
			}
			r.exec(change, personID)
			revokedAt := time.Now()
			closed := make(chan error, 1)
			go func() {
				_, err := reader.ReadString('\n')
				closed <- err
			}()
			select {
			case err := <-closed:
				if err == nil {
					t.Error("the stream continued after the revocation")
				}
				if took := time.Since(revokedAt); took > maxRevocation {
					t.Errorf("the stream ended %s after the revocation, want at most %s", took, maxRevocation)
				}
			// The timeout only ends a hang. The session is checked every 2 s.
			case <-time.After(time.Minute):
				t.Error("the stream is open one minute after the revocation")
			}
		})
	}
}

func TestConsole_EachSessionHasItsOwnRateLimit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	workspace := r.workspace(`"rate_limit_per_minute":1`)
	first, _ := r.memberSession(workspace, people.Owner)
	second, secondID := r.memberSession(workspace, people.Owner)
	for range 5 {
		got := r.visitIn(workspace, "GET", "/v1/calls", first, "")
		wantAnswer(t, "above the limit of the API keys", got, http.StatusOK, "")
		if limit := got.header.Get("X-RateLimit-Limit"); limit != "1200" {
			t.Errorf("X-RateLimit-Limit = %s, want 1200", limit)
		}
	}
	wantAnswer(t, "second session", r.visit("GET", "/console/v1/me", second, ""), http.StatusOK, "")
	r.exec(`UPDATE rate_limits SET tat = now() + interval '1 hour' WHERE key = 'session ' ||
		(SELECT id FROM sessions WHERE person_id = $1)`, secondID)
	wantAnswer(t, "second session above its limit", r.visit("GET", "/console/v1/me", second, ""),
		http.StatusTooManyRequests, "rate_limited")
	wantAnswer(t, "first session", r.visit("GET", "/console/v1/me", first, ""), http.StatusOK, "")
	r.exec(`DELETE FROM sessions WHERE person_id = $1`, secondID)
	wantAnswer(t, "revoked session above its limit", r.visit("GET", "/console/v1/me", second, ""),
		http.StatusUnauthorized, "invalid_session")
}

// Without TRUSTED_PROXIES, the gateway sees only the address of the console. A rate limit for this
// address would be shared by all people.
func TestConsole_ListOfSignInMethodsIsNotRateLimited(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	code := func() answered { return r.visit("POST", "/console/v1/sign-in/code", "", `{"code":"AAAA"}`) }
	wantAnswer(t, "wrong code", code(), http.StatusUnauthorized, "invalid_code")
	for range 3 {
		r.visit("GET", "/console/v1/sign-in/methods", "", "")
	}
	if n := r.count(`rate_limits WHERE key LIKE 'address %'`); n != 1 {
		t.Fatalf("limits of addresses = %d, want 1", n)
	}
	r.exec(`UPDATE rate_limits SET tat = now() + interval '1 hour'`)
	wantAnswer(t, "code above the limit", code(), http.StatusTooManyRequests, "rate_limited")
	wantAnswer(t, "ways to sign in", r.visit("GET", "/console/v1/sign-in/methods", "", ""), http.StatusOK, "")
}

func TestConsole_ProfileAndMemberListContainThePerson(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	workspace := r.workspace("")
	token, personID := r.memberSession(workspace, people.Compliance)
	me := r.visit("GET", "/console/v1/me", token, "")
	for _, want := range []string{`"id":"` + personID.String(), `"role":"compliance"`, `"workspace_name":"Acme"`,
		`"operator":false`, `"current":true`} {
		if !strings.Contains(me.body, want) {
			t.Errorf("me = %s, want %s in it", me.body, want)
		}
	}
	if strings.Contains(me.body, "rfs_") {
		t.Errorf("me contains a token: %s", me.body)
	}
	members := r.visitIn(workspace, "GET", "/console/v1/members?limit=10", token, "")
	wantAnswer(t, "members", members, http.StatusOK, "")
	if !strings.Contains(members.body, personID.String()) {
		t.Errorf("members = %s, want %s in it", members.body, personID)
	}
	if got := members.header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control = %q, want no-store", got)
	}
}

func TestConsole_RetentionDeletesExpiredSessions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	r.operatorSession()
	live := r.operatorSession()
	r.exec(`UPDATE sessions SET last_used_at = now() - interval '31 minutes' WHERE hash <> $1`, hashOf(live))
	if err := r.store.DeleteExpiredSignIns(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := r.count("sessions"); got != 1 {
		t.Errorf("sessions = %d, want 1", got)
	}
	wantAnswer(t, "live session", r.visit("GET", "/console/v1/me", live, ""), http.StatusOK, "")
}

func hashOf(token string) []byte {
	hash := people.HashSecret(token)
	return hash[:]
}

func TestConsole_ChangeOfARoleNeedsItsPresentETag(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	workspace := r.workspace("")
	owner, _ := r.memberSession(workspace, people.Owner)
	_, personID := r.memberSession(workspace, people.Viewer)
	path := "/console/v1/members/" + personID.String()
	read := r.visitIn(workspace, "GET", path, owner, "")
	tag := read.header.Get("ETag")
	if got := read.member("etag"); got != tag || tag == "" {
		t.Fatalf("etag of the body = %q, want %q as in the header", got, tag)
	}
	change := func(role, tag string) answered {
		return send(t, "PATCH", r.console.URL+path, owner, `{"role":"`+role+`"}`,
			http.Header{"Ringfence-Workspace": {workspace}, "If-Match": {tag}})
	}
	changed := change("developer", tag)
	wantAnswer(t, "with the ETag", changed, http.StatusOK, "")
	wantAnswer(t, "with an old ETag", change("compliance", tag), http.StatusPreconditionFailed, "precondition_failed")
	if got := r.visitIn(workspace, "GET", path, owner, "").member("role"); got != "developer" {
		t.Errorf("role = %s, want developer", got)
	}
	before := changed.header.Get("ETag")
	r.exec(`UPDATE memberships SET from_groups = true WHERE person_id = $1`, personID)
	wantAnswer(t, "after the provider set the role", change("compliance", before),
		http.StatusPreconditionFailed, "precondition_failed")
	wantAnswer(t, "with any ETag", change("compliance", "*"), http.StatusOK, "")
}
