package pages

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"ringfence.dev/services/console/internal/gateway"
)

// cookieOf returns the cookie that a response sets.
func cookieOf(w *httptest.ResponseRecorder, name string) *http.Cookie {
	for _, cookie := range w.Result().Cookies() {
		if cookie.Name == name {
			return cookie
		}
	}
	return &http.Cookie{}
}

func TestOIDC_OnlyTheBrowserThatStartedTheSignInCanFinishIt(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	const provider = "https://id.example.com/authorize?state=s&code_challenge=c"
	s.set("POST /console/v1/sign-in/oidc/start", map[string]any{"attempt": "rfa_secret", "authorization_url": provider})
	s.set("POST /console/v1/sign-in/oidc/finish", map[string]any{"token": "rfs_new"})

	r := s.request("GET", "/sign-in/oidc/start?next="+url.QueryEscape("/w/x/calls"), nil)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	started := s.do(r)
	wantStatus(t, started, http.StatusSeeOther)
	wantHeader(t, started, "Location", provider)
	attempt := cookieOf(started, "__Host-rf-attempt")
	if !attempt.HttpOnly || !attempt.Secure || attempt.SameSite != http.SameSiteLaxMode {
		t.Errorf("cookie of the attempt = %v, want HttpOnly, Secure and SameSite=Lax", attempt)
	}
	if strings.Contains(started.Header().Get("Location"), "rfa_") {
		t.Error("the address of the provider contains the secret of the attempt")
	}

	back := s.request("GET", "/sign-in/oidc?state=s&code=c", nil)
	for _, cookie := range started.Result().Cookies() {
		back.AddCookie(cookie)
	}
	back.Header.Set("Sec-Fetch-Site", "cross-site") // the provider redirects to the console
	finished := s.do(back)
	wantStatus(t, finished, http.StatusSeeOther)
	wantHeader(t, finished, "Location", "/w/x/calls")
	if got := cookieOf(finished, "__Host-rf").Value; got != "rfs_new" {
		t.Errorf("session cookie = %q, want the new token", got)
	}
	if got := s.body("/console/v1/sign-in/oidc/finish"); got != `{"attempt":"rfa_secret","code":"c","state":"s"}` {
		t.Errorf("body of finish = %s", got)
	}

	// An attacker can send the callback address to another browser. That other browser does not have
	// the cookie of the sign-in.
	s.set("POST /console/v1/sign-in/oidc/finish", refusal{status: 401, code: "sign_in_expired"})
	refused := s.do(s.request("GET", "/sign-in/oidc?state=s&code=c", nil))
	wantHeader(t, refused, "Location", "/sign-in?error=sign_in_expired")
	if got := s.body("/console/v1/sign-in/oidc/finish"); got != `{"attempt":"","code":"c","state":"s"}` {
		t.Errorf("body of finish without the cookie = %s", got)
	}
}

func TestOIDC_OtherSitesCannotStartASignIn(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	r := s.request("GET", "/sign-in/oidc/start", nil)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	wantStatus(t, s.do(r), http.StatusForbidden)
	if sent := s.sent("/console/v1/sign-in/oidc/start"); len(sent) != 0 {
		t.Errorf("started sign-ins = %d, want none", len(sent))
	}
}

func TestSignOut_EndsTheSessionAtTheGateway(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	w := s.do(s.request("POST", "/sign-out", url.Values{}))
	wantHeader(t, w, "Location", "/sign-in")
	if got := cookieOf(w, "__Host-rf"); got.MaxAge >= 0 {
		t.Errorf("session cookie = %v, want it removed", got)
	}
	if sent := s.sent("/console/v1/sessions/current"); len(sent) != 1 || sent[0].Method != http.MethodDelete {
		t.Errorf("requests for the session = %v, want one DELETE", sent)
	}
}

// If the gateway is not reachable, the session still exists, so the person must see an error.
func TestSignOut_UnreachableGatewayShowsAnError(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	s.Close()
	wantStatus(t, s.do(s.request("POST", "/sign-out", url.Values{})), http.StatusServiceUnavailable)
}

func TestInvitation_TokenIsNotSentToOtherSites(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	s.set("POST /console/v1/sign-in/invitation", map[string]any{"workspace_name": "Demo", "role": "viewer"})
	w := s.get("/invitations/rfi_x")
	wantStatus(t, w, http.StatusOK)
	wantHeader(t, w, "Referrer-Policy", "no-referrer")
	wantBody(t, w, "You are invited to Demo as Viewer.")
}

func TestReason_IsDeletedAtTheEndOfTheSession(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	given := s.do(s.request("POST", "/w/"+workspaceID+"/reason", url.Values{"reason": {"complaint 7"}}))
	reason := cookieOf(given, "__Host-rf-reason")
	if reason.Value == "" {
		t.Fatal("no cookie with the reason")
	}
	s.set("POST /console/v1/sign-in/code", map[string]any{"token": "rfs_next"})
	answer := s.do(s.request("POST", "/sign-in/code", url.Values{"code": {"x"}}))
	if got := cookieOf(answer, "__Host-rf-reason"); got.MaxAge >= 0 {
		t.Errorf("cookie after a sign-in = %v, want it removed", got)
	}
	// The cookie that contains the reason has no effect with another session.
	next := s.request("GET", "/w/"+workspaceID+"/calls", nil)
	next.Header.Del("Cookie")
	next.AddCookie(&http.Cookie{Name: "__Host-rf", Value: "rfs_next"})
	next.AddCookie(&http.Cookie{Name: reason.Name, Value: reason.Value})
	wantStatus(t, s.do(next), http.StatusOK)
	sent := s.sent("/v1/calls")
	if got := sent[len(sent)-1].Header.Get("Ringfence-Reason"); got != "" {
		t.Errorf("reason of the next person = %q, want none", got)
	}
	s.set("GET /console/v1/me", refusal{status: http.StatusUnauthorized, code: "invalid_session"})
	if got := cookieOf(s.get("/w/"+workspaceID+"/calls"), "__Host-rf-reason"); got.MaxAge >= 0 {
		t.Errorf("cookie after the end of the session = %v, want it removed", got)
	}
}

// The browser must receive the new session token before the console sends a file.
func TestToken_IsReplacedBeforeAFileIsSent(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	me := jsonOf(t, s.responses["GET /console/v1/me"])
	s.set("GET /console/v1/me", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Ringfence-Background") != "" {
			t.Error("GET /me is a background request, which replaces no token")
		}
		w.Header().Set("Ringfence-Session", "rfs_next")
		_, _ = w.Write([]byte(me)) // an incomplete response fails the test
	}))
	w := s.get("/w/" + workspaceID + "/calls.csv")
	wantStatus(t, w, http.StatusOK)
	if got := cookieOf(w, "__Host-rf").Value; got != "rfs_next" {
		t.Errorf("session cookie = %q, want the new token", got)
	}
	if got := s.sent("/v1/calls")[0].Header.Get("Authorization"); got != "Bearer rfs_next" {
		t.Errorf("Authorization of the next request = %q, want the new token", got)
	}
	for _, r := range s.sent("/admin/v1/workspaces/" + workspaceID) {
		if r.Header.Get("Ringfence-Background") == "" {
			t.Error("a concurrent request could replace the token")
		}
	}
}

func TestExpiredSession_BackgroundRequestsRemoveNoCookie(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	s.set("GET /console/v1/me", refusal{status: http.StatusUnauthorized, code: "invalid_session"})
	r := s.request("GET", "/w/"+workspaceID+"/calls", nil)
	r.Header.Set("RF-Background", "1")
	w := s.do(r)
	wantStatus(t, w, http.StatusUnauthorized)
	if cookies := w.Result().Cookies(); len(cookies) != 0 {
		t.Errorf("cookies = %v, want none: the browser can have a new token", cookies)
	}
}

func TestInvitation_TokenIsStoredInACookie(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	s.set("GET /console/v1/sign-in/methods", map[string]any{"oidc": true})
	s.set("POST /console/v1/sign-in/invitation", map[string]any{"workspace_name": "Demo", "role": "viewer"})
	s.set("POST /console/v1/sign-in/oidc/start", map[string]any{"attempt": "rfa_secret",
		"authorization_url": "https://id.example.com/authorize"})
	r := s.request("GET", "/invitations/rfi_x", nil)
	r.Header.Del("Cookie")
	shown := s.do(r)
	wantBody(t, shown, `href="/sign-in/oidc/start?invited=1"`)
	cookie := cookieOf(shown, "__Host-rf-invitation")
	if cookie.Value != "rfi_x" || !cookie.HttpOnly || !cookie.Secure {
		t.Errorf("cookie = %v, want the token with HttpOnly and Secure", cookie)
	}
	for query, want := range map[string]string{"?invited=1": `{"again":false,"invitation":"rfi_x"}`, "": `{"again":false}`,
		"?again=1": `{"again":true}`} {
		start := s.request("GET", "/sign-in/oidc/start"+query, nil)
		start.AddCookie(&http.Cookie{Name: cookie.Name, Value: cookie.Value})
		wantStatus(t, s.do(start), http.StatusSeeOther)
		if got := s.body("/console/v1/sign-in/oidc/start"); got != want {
			t.Errorf("body of start%s = %s, want %s", query, got, want)
		}
	}
}
