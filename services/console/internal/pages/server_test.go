package pages

import (
	"encoding/json"
	"fmt"
	"html"
	"html/template"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"ringfence.dev/services/console/internal/gateway"
)

const (
	workspaceID = "01a218cb-00ad-7433-a772-fa8615bd3f28"
	token       = "rfs_iayskjmrsfamomy3dbh2zhmouyihspihryjucbcflci3qbn4o4pq"
)

// fakeGateway responds with the JSON of a path, and records the requests.
type fakeGateway struct {
	mu        sync.Mutex
	responses map[string]any // by "GET /path"
	requests  []*http.Request
	bodies    []string
	*httptest.Server
}

// tagged is a response with an ETag. The fake gateway refuses a change if If-Match differs from the
// ETag.
type tagged struct {
	etag string
	body any
}

const oldTag, newTag = `"2"`, `"3"`

// refusal is a response with an error of the gateway.
type refusal struct {
	status                  int
	code, message, newToken string
}

func newFakeGateway(t *testing.T, role string) *fakeGateway {
	t.Helper()
	f := &fakeGateway{responses: map[string]any{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	member := map[string]any{"workspace_id": workspaceID, "workspace_name": "Demo", "role": role}
	if role == gateway.Operator {
		member = map[string]any{"role": role}
	}
	f.set("GET /console/v1/me", map[string]any{
		"person": map[string]any{
			"id":   workspaceID,
			"name": "Ada",
		},
		"operator":    role == gateway.Operator,
		"memberships": []any{member},
	})
	f.set("GET /console/v1/sign-in/methods", map[string]any{"codes": true})
	f.set(
		"GET /admin/v1/workspaces/"+workspaceID,
		map[string]any{"id": workspaceID, "name": "Demo", "plan": "growth", "status": "active"},
	)
	f.set("GET /v1/dialing", map[string]any{"state": "active"})
	return f
}

func (f *fakeGateway) set(route string, response any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.responses[route] = response
}

func (f *fakeGateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // the error is ignored: the tests compare the body
	f.mu.Lock()
	f.requests, f.bodies = append(f.requests, r), append(f.bodies, string(body))
	response, ok := f.responses[r.Method+" "+r.URL.Path]
	stored, isTagged := f.responses["GET "+r.URL.Path].(tagged)
	f.mu.Unlock()
	if named := r.Header.Values("If-Match"); isTagged && len(named) > 0 && named[0] != stored.etag {
		response, ok = refusal{status: http.StatusPreconditionFailed, code: "precondition_failed"}, true
	}
	if found, is := response.(tagged); is {
		w.Header().Set("ETag", found.etag)
		response = found.body
	}
	if serve, is := response.(http.HandlerFunc); is {
		serve(w, r)
		return
	}
	if !ok {
		response = map[string]any{"data": []any{}, "has_more": false}
	}
	status := http.StatusOK
	if refused, is := response.(refusal); is {
		status = refused.status
		if refused.newToken != "" {
			w.Header().Set("Ringfence-Session", refused.newToken)
		}
		response = map[string]any{"error": map[string]any{"code": refused.code, "message": refused.message}}
	}
	w.WriteHeader(status)
	// the error is ignored: an incomplete response fails the test
	_ = json.NewEncoder(w).Encode(response)
}

// sent returns the requests with a path.
func (f *fakeGateway) sent(path string) (found []*http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.requests {
		if r.URL.Path == path {
			found = append(found, r)
		}
	}
	return found
}

// body returns the body of the last request with a path.
func (f *fakeGateway) body(path string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := len(f.requests) - 1; i >= 0; i-- {
		if f.requests[i].URL.Path == path {
			return f.bodies[i]
		}
	}
	return ""
}

// site is a console in front of a fake gateway.
type site struct {
	*fakeGateway
	server *Server
}

const address = "https://console.example.com"

func newSite(t *testing.T, role string) site {
	t.Helper()
	return newSiteAt(t, role, address)
}

func newSiteAt(t *testing.T, role, console string) site {
	t.Helper()
	f := newFakeGateway(t, role)
	base, err := url.Parse(f.URL)
	if err != nil {
		t.Fatal(err)
	}
	own, err := url.Parse(console)
	if err != nil {
		t.Fatal(err)
	}
	client := gateway.NewClient(base)
	server, err := New(Config{Gateway: client, Hub: gateway.NewHub(client), URL: own, Hosts: []string{own.Host}})
	if err != nil {
		t.Fatal(err)
	}
	return site{fakeGateway: f, server: server}
}

// request returns a request of a browser with a session.
func (s site) request(method, path string, form url.Values) *http.Request {
	r := httptest.NewRequest(method, s.server.URL.String()+path, strings.NewReader(form.Encode()))
	r.Header.Set("X-Forwarded-Proto", "https")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	r.AddCookie(&http.Cookie{Name: s.server.cookies.session, Value: token})
	return r
}

func (s site) do(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.server.ServeHTTP(w, r)
	return w
}

func (s site) get(path string) *httptest.ResponseRecorder { return s.do(s.request("GET", path, nil)) }

func wantStatus(t *testing.T, w *httptest.ResponseRecorder, want int) {
	t.Helper()
	if w.Code != want {
		t.Errorf("status = %d, want %d; body:\n%s", w.Code, want, w.Body)
	}
}

func wantHeader(t *testing.T, w *httptest.ResponseRecorder, name, want string) {
	t.Helper()
	if got := w.Header().Get(name); got != want {
		t.Errorf("%s = %q, want %q", name, got, want)
	}
}

func wantBody(t *testing.T, w *httptest.ResponseRecorder, want string) {
	t.Helper()
	if !strings.Contains(html.UnescapeString(w.Body.String()), want) && !strings.Contains(w.Body.String(), want) {
		t.Errorf("body does not contain %q:\n%s", want, w.Body)
	}
}

func TestServer_SetsTheSecurityHeadersOnEveryResponse(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	for _, path := range []string{"/sign-in", "/w/" + workspaceID, "/w/" + workspaceID + "/none", "/assets/none"} {
		w := s.get(path)
		wantHeader(t, w, "X-Frame-Options", "DENY")
		wantHeader(t, w, "X-Content-Type-Options", "nosniff")
		wantHeader(t, w, "Cache-Control", "no-store")
		wantHeader(t, w, "Strict-Transport-Security", "max-age=31536000")
		policy := w.Header().Get("Content-Security-Policy")
		if strings.Contains(policy, "unsafe") || !strings.Contains(policy, "frame-ancestors 'none'") {
			t.Errorf("%s: Content-Security-Policy = %q", path, policy)
		}
	}
}

func TestServer_RefusesRequestsForUnknownHosts(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	for _, host := range []string{"evil.example.com", "127.0.0.1", "console.example.com:8080",
		"console.example.com.evil.example"} {
		r := s.request("GET", "/w/"+workspaceID, nil)
		r.Host = host
		wantStatus(t, s.do(r), http.StatusMisdirectedRequest)
	}
	if sent := s.sent("/console/v1/me"); len(sent) != 0 {
		t.Errorf("requests to the gateway = %d, want none", len(sent))
	}
}

func TestServer_RefusesPlainHTTP(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	for _, proto := range []string{"http", ""} {
		r := s.request("GET", "/sign-in", nil)
		r.TLS = nil
		r.Header.Set("X-Forwarded-Proto", proto)
		wantStatus(t, s.do(r), http.StatusForbidden)
	}
}

func TestServer_RefusesFormsOfOtherSites(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	hangUp := "/w/" + workspaceID + "/calls/" + workspaceID + "/hangup"
	tests := []struct{ name, header, value string }{
		{name: "another site", header: "Sec-Fetch-Site", value: "cross-site"},
		{name: "a sibling", header: "Sec-Fetch-Site", value: "same-site"},
		{name: "an old browser", header: "Origin", value: "https://evil.example.com"},
		{name: "an opaque origin", header: "Origin", value: "null"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := s.request("POST", hangUp, url.Values{})
			r.Header.Del("Sec-Fetch-Site")
			r.Header.Set(tt.header, tt.value)
			wantStatus(t, s.do(r), http.StatusForbidden)
			if sent := s.sent("/v1/calls/" + workspaceID + "/hangup"); len(sent) != 0 {
				t.Errorf("hang-ups = %d, want none", len(sent))
			}
		})
	}
}

func TestSignIn_StoresTheTokenInASafeCookie(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, console, want string }{
		{name: "https", console: address, want: "__Host-rf=rfs_new; Path=/; Max-Age=43200; HttpOnly; Secure; SameSite=Lax"},
		{
			name:    "this machine",
			console: "http://localhost:8082",
			want:    "rf-8082=rfs_new; Path=/; Max-Age=43200; HttpOnly; SameSite=Lax",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSiteAt(t, gateway.Owner, tt.console)
			s.set("POST /console/v1/sign-in/code", map[string]any{"token": "rfs_new"})
			w := s.do(s.request("POST", "/sign-in/code", url.Values{"code": {"ABCD"}, "next": {"/w/x?status=busy"}}))
			wantStatus(t, w, http.StatusSeeOther)
			wantHeader(t, w, "Set-Cookie", tt.want)
			wantHeader(t, w, "Location", "/w/x?status=busy")
		})
	}
}

// An attacker could place a session cookie in the browser. So the console sends the token of the
// earlier session, and the gateway ends this session.
func TestSignIn_ReplacesAnEarlierSession(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	s.set("POST /console/v1/sign-in/code", map[string]any{"token": "rfs_new"})
	s.do(s.request("POST", "/sign-in/code", url.Values{"code": {"ABCD"}}))
	sent := s.sent("/console/v1/sign-in/code")
	if len(sent) != 1 {
		t.Fatalf("sign-ins = %d, want 1", len(sent))
	}
	if got := sent[0].Header.Get("Authorization"); got != "Bearer "+token {
		t.Errorf("Authorization = %q, want the earlier token", got)
	}
}

func TestLocalPath_RefusesOtherSites(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "//evil.example", `/\evil.example`, "https://evil.example",
		"javascript:alert(1)", "/\t/evil.example",
		"\\\\evil.example", "/\n/evil.example", "evil", "///evil.example", "/%zz"} {
		if got := localPath(text); got != "/" {
			t.Errorf("localPath(%q) = %q, want /", text, got)
		}
	}
	for _, text := range []string{"/", "/w/1/calls?to=%2B1#x", "/a//b"} {
		if got := localPath(text); got != text {
			t.Errorf("localPath(%q) = %q, want it unchanged", text, got)
		}
	}
}

func TestPage_WithoutASessionRedirectsToTheSignIn(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	s.set("GET /console/v1/me", refusal{status: 401, code: "invalid_session"})
	path := "/w/" + workspaceID + "/calls?status=busy"
	w := s.get(path)
	wantStatus(t, w, http.StatusSeeOther)
	wantHeader(t, w, "Location", "/sign-in?next="+url.QueryEscape(path)+"&expired=1")
	if cookie := w.Header().Get("Set-Cookie"); !strings.Contains(cookie, "__Host-rf=; Path=/; Max-Age=0") {
		t.Errorf("Set-Cookie = %q, want the session cookie removed", cookie)
	}
}

func TestPage_ForwardsTheSessionAndTheWorkspaceOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	r := s.request("GET", "/w/"+workspaceID+"/calls", nil)
	r.Header.Set("Authorization", "Bearer stolen")
	r.Header.Set("Ringfence-Workspace", "another")
	r.Header.Set("X-Forwarded-For", "203.0.113.9")
	wantStatus(t, s.do(r), http.StatusOK)
	sent := s.sent("/v1/calls")
	if len(sent) != 1 {
		t.Fatalf("requests for calls = %d, want 1", len(sent))
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer " + token, "Ringfence-Workspace": workspaceID,
		"X-Forwarded-For": "203.0.113.9, 192.0.2.1", "Cookie": "",
	} {
		if got := sent[0].Header.Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
}

func TestPage_StoresAReplacedToken(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	s.set("GET /v1/calls", refusal{status: 403, code: "forbidden", newToken: "rfs_replaced"})
	w := s.get("/w/" + workspaceID + "/calls")
	if cookie := w.Header().Get("Set-Cookie"); !strings.HasPrefix(cookie, "__Host-rf=rfs_replaced;") {
		t.Errorf("Set-Cookie = %q, want the new token", cookie)
	}
}

func TestPage_ExplainsRefusals(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		refused refusal
		status  int
		text    string
	}{
		{name: "forbidden", refused: refusal{status: 403, code: "forbidden"}, status: 403, text: "You may not do this"},
		{
			name:    "old sign-in",
			refused: refusal{status: 403, code: "recent_sign_in_required"},
			status:  403,
			text:    "/sign-in?again=1",
		},
		{
			name:    "no reason",
			refused: refusal{status: 422, code: "validation_error", message: "Ringfence-Reason must be a reason."},
			status:  403,
			text:    `name="reason"`,
		},
		{name: "not found", refused: refusal{status: 404, code: "not_found"}, status: 404, text: "Not found"},
		{name: "limit", refused: refusal{status: 429, code: "rate_limited"}, status: 429, text: "Too many requests"},
		{name: "unavailable", refused: refusal{status: 503, code: "unavailable"}, status: 503, text: "not reachable"},
		{
			name:    "hostile message",
			refused: refusal{status: 422, code: "x", message: "<script>alert(1)</script>"},
			status:  422,
			text:    "&lt;script&gt;",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, gateway.Owner)
			s.set("GET /v1/calls", tt.refused)
			w := s.get("/w/" + workspaceID + "/calls")
			wantStatus(t, w, tt.status)
			wantBody(t, w, tt.text)
		})
	}
}

func TestErrorPage_LinksToTheWorkspacesAndShowsTheRequest(t *testing.T) {
	t.Parallel()
	broken := template.Must(template.New("").Parse(`{{define "layout"}}{{.Data.Missing}}{{end}}`))
	for _, tt := range []struct {
		name, language, title, link string
		status, want                int
	}{
		{name: "a template fails", title: "Something went wrong", link: "Go to the workspaces", want: 500},
		{name: "a template fails, in German", language: "de", title: "Etwas ist schiefgegangen",
			link: "Zu den Arbeitsbereichen", want: 500},
		{name: "forbidden", status: 403, title: "You may not do this", link: "Go to the workspaces", want: 403},
		{name: "limit", status: 429, title: "Too many requests", link: "Go to the workspaces", want: 429},
		{name: "unavailable", status: 503, title: "The service is not reachable", link: "Go to the workspaces", want: 503},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, gateway.Owner)
			r := s.request("GET", "/w/"+workspaceID+"/calls", nil)
			if tt.status == 0 {
				for _, pages := range s.server.templates.pages {
					pages["calls"] = broken
				}
				r.Header.Set("X-Request-Id", "request-<b>")
			} else {
				s.set("GET /v1/calls", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("X-Request-Id", "request-<b>")
					w.WriteHeader(tt.status)
				}))
			}
			r.Header.Set("Accept-Language", tt.language)
			w := s.do(r)
			wantStatus(t, w, tt.want)
			wantHeader(t, w, "Content-Type", "text/html; charset=utf-8")
			wantBody(t, w, tt.title)
			wantBody(t, w, `href="/workspaces"><svg`)
			wantBody(t, w, "</svg>"+tt.link+"</a>")
			wantBody(t, w, "<code>request-&lt;b&gt;</code>")
			wantBody(t, w, `<nav class="nav"`)
		})
	}
}

func TestPage_ShowsTheOfflineStateWithoutAGateway(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	s.Close()
	w := s.get("/w/" + workspaceID + "/calls?status=busy")
	wantStatus(t, w, http.StatusServiceUnavailable)
	wantBody(t, w, "?status=busy")
	if cookie := w.Header().Get("Set-Cookie"); cookie != "" {
		t.Errorf("Set-Cookie = %q, want the session to be kept", cookie)
	}
}

func TestCalls_EscapeHTMLInValues(t *testing.T) {
	t.Parallel()
	hostile := `"><svg onload=alert(1)><script>x</script>{{.}}` + "\x1b[31m"
	s := newSite(t, gateway.Owner)
	s.set("GET /v1/calls", map[string]any{"has_more": false, "data": []any{map[string]any{
		"id": workspaceID, "to": hostile, "from": hostile, "status": hostile, "outcome": hostile, "external_ref": hostile,
		"agent_id": workspaceID, "direction": "outbound", "created_at": "2026-06-04T09:00:00.000Z",
	}}})
	s.set(
		"GET /admin/v1/workspaces/"+workspaceID+"/agents",
		map[string]any{"data": []any{map[string]any{"id": workspaceID, "name": hostile}}},
	)
	w := s.get("/w/" + workspaceID + "/calls?to=" + url.QueryEscape(hostile))
	wantStatus(t, w, http.StatusOK)
	for _, tag := range []string{"<svg onload", "<script>x"} {
		if strings.Contains(w.Body.String(), tag) {
			t.Errorf("body contains %q", tag)
		}
	}
}

func TestCalls_NumbersAreMaskedForViewers(t *testing.T) {
	t.Parallel()
	for role, want := range map[string]string{gateway.Viewer: "+141••••••01", gateway.Owner: "+14155550101"} {
		s := newSite(t, role)
		s.set("GET /v1/calls", map[string]any{"has_more": false, "data": []any{map[string]any{
			"id": workspaceID, "to": "+14155550101", "from": "+15005550006", "status": "completed", "agent_id": workspaceID,
			"direction": "outbound", "created_at": "2026-06-04T09:00:00.000Z",
		}}})
		w := s.get("/w/" + workspaceID + "/calls")
		wantBody(t, w, ">"+want+"<")
		if shown := strings.Contains(w.Body.String(), "4155550101"); shown != (role == gateway.Owner) {
			t.Errorf("%s: whole number in the page = %t", role, shown)
		}
	}
}

func TestCalls_FiltersBecomeParametersOfTheAPI(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	r := s.request(
		"GET",
		"/w/"+workspaceID+"/calls?to=001+415+555+0101&status=busy&created_after=2026-06-04T09:00&created_before=&x=1",
		nil,
	)
	r.AddCookie(&http.Cookie{Name: s.server.cookies.zone, Value: url.QueryEscape("Europe/Berlin")})
	wantStatus(t, s.do(r), http.StatusOK)
	sent := s.sent("/v1/calls")
	if len(sent) != 1 {
		t.Fatalf("requests for calls = %d, want 1", len(sent))
	}
	want := "created_after=2026-06-04T07%3A00%3A00Z&limit=50&status=busy&to=%2B14155550101"
	if got := sent[0].URL.RawQuery; got != want {
		t.Errorf("query = %q, want %q", got, want)
	}
}

func TestBanner_ShowsWhoPausedDialing(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	s.set("GET /v1/dialing", map[string]any{
		"state":  "paused",
		"reason": "Wrong script",
		"set_by": map[string]any{"type": "operator", "name": "Grace"},
		"set_at": "2026-06-04T09:00:00.000Z",
	})
	w := s.get("/w/" + workspaceID + "/calls")
	wantBody(t, w, "Dialing of workspace Demo is paused.")
	wantBody(t, w, "Wrong script")
	wantBody(t, w, "by Grace")
	r := s.request("GET", "/w/"+workspaceID+"/calls", nil)
	r.Header.Set("Accept-Language", "de")
	wantBody(t, s.do(r), "Das Wählen des Arbeitsbereichs Demo ist angehalten.")
}

func TestBanner_ShowsOperatorsEveryPause(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	s.set("GET /admin/v1/dialer", map[string]any{"pauses": []any{
		map[string]any{"level": "everything", "id": nil, "state": "paused", "reason": "Incident 7",
			"set_by": map[string]any{"type": "operator", "name": "person:" + workspaceID}},
		map[string]any{"level": "workspace", "id": workspaceID, "state": "paused"},
		map[string]any{"level": "trunk", "id": agentID, "state": "paused"},
		map[string]any{"level": "agent", "id": workspaceID, "state": "paused"},
	}})
	s.set("GET /admin/v1/trunks/"+agentID, map[string]any{"id": agentID, "name": "<b>Carrier"})
	w := s.get("/workspaces")
	for _, want := range []string{"All dialing is paused.", "Incident 7", "by Ada", "Dialing of workspace Demo is paused.",
		"Dialing over trunk &lt;b&gt;Carrier is paused.",
		"1 further pause"} {
		wantBody(t, w, want)
	}
}

func TestPreferences_ChangeLanguageAndTheme(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	w := s.do(
		s.request("POST", "/preferences", url.Values{"language": {"de"}, "theme": {"dark"}, "next": {"//evil.example"}}),
	)
	wantHeader(t, w, "Location", "/")
	r := s.request("GET", "/w/"+workspaceID+"/calls", nil)
	for _, cookie := range w.Result().Cookies() {
		r.AddCookie(cookie)
	}
	page := s.do(r)
	wantBody(t, page, `<html lang="de" data-theme="dark">`)
	wantBody(t, page, "Anrufe")
}

func TestFirstPage_TransfersLessThan120kB(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	page := s.get("/w/" + workspaceID)
	total := page.Body.Len()
	for name, file := range s.server.assets.files {
		if name == "icons.json" {
			continue // browsers do not load this file, because the pages contain the icons
		}
		total += max(len(file.zip), len(file.plain)*boolToInt(!file.compression))
	}
	if limit := 120_000; total > limit {
		t.Errorf("page and assets = %d bytes, want at most %d", total, limit)
	}
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestAssets_AreCachedOnlyIfTheURLHasTheCurrentVersion(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	path, err := s.server.assets.url("console.css")
	if err != nil {
		t.Fatal(err)
	}
	wantHeader(t, s.get(path), "Cache-Control", "public, max-age=31536000, immutable")
	wantHeader(t, s.get("/assets/old/console.css"), "Cache-Control", "no-store")
	wantStatus(t, s.get("/assets/old/server.go"), http.StatusNotFound)
}

func TestReason_IsSentForItsWorkspaceOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	w := s.do(
		s.request(
			"POST",
			"/w/"+workspaceID+"/reason",
			url.Values{"reason": {"ticket 7 – Ü"}, "next": {"/w/" + workspaceID}},
		),
	)
	wantStatus(t, w, http.StatusSeeOther)
	other := "01a218cb-00ad-7433-a772-000000000000"
	for workspace, want := range map[string]string{workspaceID: "ticket 7 – Ü", other: ""} {
		r := s.request("GET", fmt.Sprintf("/w/%s/calls", workspace), nil)
		for _, cookie := range w.Result().Cookies() {
			r.AddCookie(cookie)
		}
		s.do(r)
		sent := s.sent("/v1/calls")
		if got := sent[len(sent)-1].Header.Get("Ringfence-Reason"); got != want {
			t.Errorf("reason in %s = %q, want %q", workspace, got, want)
		}
	}
}

func TestRecording_ForwardsARangeRequest(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	call := "/v1/calls/" + workspaceID + "/recording"
	s.set(
		"GET "+call,
		map[string]any{"url": "http://127.0.0.1:8080/recordings/a/b.wav?signature=secret", "expires_in": 3600},
	)
	s.set("GET /recordings/a/b.wav", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "audio/wav")
		w.Header().Set("Set-Cookie", "other=1")
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader("0123456789"))
	}))
	r := s.request("GET", "/w/"+workspaceID+"/calls/"+workspaceID+"/recording", nil)
	r.Header.Set("Range", "bytes=2-4")
	w := s.do(r)
	wantStatus(t, w, http.StatusPartialContent)
	wantHeader(t, w, "Content-Range", "bytes 2-4/10")
	wantHeader(t, w, "Content-Type", "audio/wav")
	wantHeader(t, w, "Cache-Control", "no-store")
	wantHeader(t, w, "Set-Cookie", "")
	if got := w.Body.String(); got != "234" {
		t.Errorf("body = %q, want 234", got)
	}
	if sent := s.sent("/recordings/a/b.wav"); len(sent) != 1 || sent[0].URL.RawQuery != "signature=secret" {
		t.Errorf("requests for the recording = %v, want one with the signature", sent)
	}
}

// A link to an object store has its own signature. The session token must not reach the store.
func TestRecording_ObjectStoreGetsNoSession(t *testing.T) {
	t.Parallel()
	got := make(chan http.Header, 1)
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<script>alert(1)</script>")
	}))
	t.Cleanup(store.Close)
	s := newSite(t, gateway.Owner)
	s.set(
		"GET /v1/calls/"+workspaceID+"/recording",
		map[string]any{"url": store.URL + "/bucket/b.wav?X-Amz-Signature=1"},
	)
	w := s.get("/w/" + workspaceID + "/calls/" + workspaceID + "/recording")
	wantStatus(t, w, http.StatusOK)
	wantHeader(t, w, "Content-Type", "application/octet-stream")
	header := <-got
	for _, name := range []string{"Authorization", "Cookie", "Ringfence-Workspace", "X-Forwarded-For"} {
		if value := header.Get(name); value != "" {
			t.Errorf("%s = %q at the object store, want none", name, value)
		}
	}
}

func jsonOf(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
