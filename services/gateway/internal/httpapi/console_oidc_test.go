package httpapi_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc/oidctest"
	"github.com/google/uuid"
	"golang.org/x/oauth2"

	"ringfence.dev/services/gateway/internal/httpapi"
	"ringfence.dev/services/gateway/internal/people"
)

// provider is an OpenID provider. It checks the PKCE verifier of each code.
type provider struct {
	t      *testing.T
	server *httptest.Server
	key    *ecdsa.PrivateKey
	// supported is the list claims_supported in the configuration of the provider.
	supported []string

	mu    sync.Mutex
	codes map[string]url.Values // the parameters of the authorization request, by code
	// claims are the claims of the next ID token. The provider adds nonce, aud and the times.
	claims map[string]any
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{t: t, key: key, codes: map[string]url.Values{}}
	described := &oidctest.Server{
		PublicKeys: []oidctest.PublicKey{{PublicKey: key.Public(), KeyID: "k", Algorithm: "ES256"}},
		Algorithms: []string{"ES256"},
	}
	mux := http.NewServeMux()
	mux.Handle("/", described)
	mux.HandleFunc("POST /token", p.token)
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, r *http.Request) {
		recorder := httptest.NewRecorder()
		described.ServeHTTP(recorder, r)
		var metadata map[string]any
		if err := json.Unmarshal(recorder.Body.Bytes(), &metadata); err != nil {
			t.Error(err)
		}
		metadata["claims_supported"] = p.supported
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(metadata) // the sign-in fails if the response is incomplete
	})
	p.server = httptest.NewServer(mux)
	t.Cleanup(p.server.Close)
	described.SetIssuer(p.server.URL)
	return p
}

// authorize simulates the sign-in of the person at the provider. It returns the parameters with
// which the provider redirects the browser.
func (p *provider) authorize(address string, claims map[string]any) (state, code string) {
	p.t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		p.t.Fatal(err)
	}
	query := parsed.Query()
	if got := query.Get("code_challenge_method"); got != "S256" {
		p.t.Errorf("code_challenge_method = %q, want S256", got)
	}
	if got := query.Get("redirect_uri"); got != "https://console.example.com/sign-in/oidc" {
		p.t.Errorf("redirect_uri = %q", got)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	code = uuid.NewString()
	p.codes[code], p.claims = query, claims
	return query.Get("state"), code
}

func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	query, known := p.codes[r.PostFormValue("code")]
	delete(p.codes, r.PostFormValue("code"))
	if !known || oauth2.S256ChallengeFromVerifier(r.PostFormValue("code_verifier")) != query.Get("code_challenge") {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
		return
	}
	claims := map[string]any{"iss": p.server.URL, "aud": query.Get("client_id"), "nonce": query.Get("nonce"),
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix()}
	for name, value := range p.claims {
		claims[name] = value
	}
	text, err := json.Marshal(claims)
	if err != nil {
		p.t.Error(err)
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"access_token":"a","token_type":"Bearer","id_token":%q}`,
		oidctest.SignIDToken(p.key, "k", "ES256", string(text)))
}

func (r *rig) consoleURL() *url.URL { return &url.URL{Scheme: "https", Host: "console.example.com"} }

// newConsoleWithProvider starts a console at which people sign in through the provider p.
func (r *rig) newConsoleWithProvider(p *provider, roles ...people.GroupRole) {
	r.t.Helper()
	config := r.consoleConfig()
	config.OIDC = people.NewOIDC(people.OIDCConfig{
		Issuer: p.server.URL, ClientID: "ringfence", ClientSecret: "secret", Scopes: []string{"openid", "profile", "email"},
		RedirectURL: r.consoleURL().JoinPath("sign-in", "oidc").String(), GroupsClaim: "groups", Roles: roles,
	})
	r.console = httptest.NewServer(httpapi.NewConsole(config, nil))
	r.t.Cleanup(r.console.Close)
}

func (r *rig) startOIDC(invitation string) (attempt, address string) {
	r.t.Helper()
	body := `{}`
	if invitation != "" {
		body = `{"invitation":"` + invitation + `"}`
	}
	return r.startOIDCWith(body)
}

func (r *rig) startOIDCWith(body string) (attempt, address string) {
	r.t.Helper()
	started := r.visit("POST", "/console/v1/sign-in/oidc/start", "", body)
	if started.status != http.StatusCreated {
		r.t.Fatalf("POST oidc/start = %d %s, want 201", started.status, started.body)
	}
	return started.member("attempt"), started.member("authorization_url")
}

func (r *rig) finishOIDC(attempt, state, code string) answered {
	r.t.Helper()
	body, err := json.Marshal(map[string]string{"attempt": attempt, "state": state, "code": code})
	if err != nil {
		r.t.Fatal(err)
	}
	return r.visit("POST", "/console/v1/sign-in/oidc/finish", "", string(body))
}

func (r *rig) signInAt(p *provider, claims map[string]any, invitation string) answered {
	r.t.Helper()
	attempt, address := r.startOIDC(invitation)
	state, code := p.authorize(address, claims)
	return r.finishOIDC(attempt, state, code)
}

func TestConsole_OIDCSignsInWithAnInvitation(t *testing.T) {
	t.Parallel()
	r, p := newRig(t), newProvider(t)
	r.newConsoleWithProvider(p)
	workspace, operator := r.workspace(""), r.operatorSession()
	claims := map[string]any{"sub": "u1", "name": "Grace Hopper", "email": "grace@example.com"}

	wantAnswer(t, "without a role", r.signInAt(p, claims, ""), http.StatusForbidden, "no_access")
	if got := r.count("people"); got != 1 { // the only person is the operator
		t.Errorf("people after a refused sign-in = %d, want 1", got)
	}
	invited := r.visitIn(workspace, "POST", "/console/v1/invitations", operator, `{"role":"compliance"}`)
	wantAnswer(t, "POST invitations", invited, http.StatusCreated, "")
	first := r.signInAt(p, claims, invited.member("token"))
	wantAnswer(t, "with the invitation", first, http.StatusCreated, "")
	me := r.visit("GET", "/console/v1/me", first.member("token"), "")
	for _, want := range []string{`"name":"Grace Hopper"`, `"email":"grace@example.com"`, `"role":"compliance"`,
		`"method":"oidc"`} {
		if !strings.Contains(me.body, want) {
			t.Errorf("me = %s, want %s in it", me.body, want)
		}
	}
	wantAnswer(t, "invitation used twice", r.signInAt(p, map[string]any{"sub": "u2"}, invited.member("token")),
		http.StatusNotFound, "not_found")

	claims["name"], claims["email"] = "Grace Murray", "other@example.com"
	wantAnswer(t, "second sign-in", r.signInAt(p, claims, ""), http.StatusCreated, "")
	claims["sub"] = "u3"
	wantAnswer(t, "same email, other subject", r.signInAt(p, claims, ""), http.StatusForbidden, "no_access")
	if got := r.count("people"); got != 2 {
		t.Errorf("people = %d, want 2: a person is identified by issuer and subject", got)
	}
}

func TestConsole_OIDCRefusesForgedReusedAndExpiredResponses(t *testing.T) {
	t.Parallel()
	r, p := newRig(t), newProvider(t)
	r.newConsoleWithProvider(p, people.GroupRole{Group: "ops", Role: people.Operator})
	claims := func(changes ...string) map[string]any {
		all := map[string]any{"sub": "u1", "groups": []string{"ops"}}
		for i := 0; i < len(changes); i += 2 {
			all[changes[i]] = changes[i+1]
		}
		return all
	}
	for name, changed := range map[string]map[string]any{
		"nonce of another sign-in": claims("nonce", "x"),
		"token for another client": claims("aud", "x"),
		"other issuer":             claims("iss", "https://evil.example.com"),
		"expired token":            {"sub": "u1", "groups": []string{"ops"}, "exp": time.Now().Add(-time.Hour).Unix()},
	} {
		wantAnswer(t, name, r.signInAt(p, changed, ""), http.StatusUnauthorized, "sign_in_refused")
	}
	attempt, address := r.startOIDC("")
	_, code := p.authorize(address, claims())
	wantAnswer(t, "state of another sign-in", r.finishOIDC(attempt, "x", code), http.StatusUnauthorized, "sign_in_refused")

	first, firstAddress := r.startOIDC("")
	second, _ := r.startOIDC("")
	state, code := p.authorize(firstAddress, claims())
	wantAnswer(t, "response of another browser", r.finishOIDC(second, state, code), http.StatusUnauthorized,
		"sign_in_refused")
	wantAnswer(t, "without an attempt", r.finishOIDC("", state, code), http.StatusUnauthorized, "sign_in_expired")
	wantAnswer(t, "code of the provider", r.finishOIDC(first, state, code), http.StatusCreated, "")
	wantAnswer(t, "finished twice", r.finishOIDC(first, state, code), http.StatusUnauthorized, "sign_in_expired")

	old, oldAddress := r.startOIDC("")
	state, code = p.authorize(oldAddress, claims())
	r.exec(`UPDATE sign_in_attempts SET expires_at = now()`)
	wantAnswer(t, "older than 10 minutes", r.finishOIDC(old, state, code), http.StatusUnauthorized, "sign_in_expired")
}

func TestConsole_GroupsOfTheProviderGiveAndRemoveRoles(t *testing.T) {
	t.Parallel()
	r, p := newRig(t), newProvider(t)
	workspace, other := r.workspace(""), r.workspace("")
	var roles []people.GroupRole
	for _, entry := range []string{"ops=operator", "cn=dev,ou=x=developer@" + workspace, "owners=owner@" + workspace,
		"law=compliance@" + other, "gone=viewer@" + uuid.NewString()} {
		given, err := people.ParseGroupRole(entry)
		if err != nil {
			t.Fatal(err)
		}
		roles = append(roles, given)
	}
	r.newConsoleWithProvider(p, roles...)
	signIn := func(groups ...string) answered {
		return r.signInAt(p, map[string]any{"sub": "u1", "groups": groups}, "")
	}
	memberships := func(token string) string { return r.visit("GET", "/console/v1/me", token, "").body }

	first := signIn("cn=dev,ou=x", "owners", "law", "gone", "unknown")
	wantAnswer(t, "first sign-in", first, http.StatusCreated, "")
	me := memberships(first.member("token"))
	for _, want := range []string{`"role":"owner"`, `"role":"compliance"`, `"from_groups":true`} {
		if !strings.Contains(me, want) {
			t.Errorf("me = %s, want %s in it", me, want)
		}
	}
	if strings.Contains(me, `"role":"developer"`) {
		t.Errorf("me = %s, want only the role that permits most", me)
	}

	second := signIn("cn=dev,ou=x")
	wantAnswer(t, "fewer groups", second, http.StatusCreated, "")
	me = memberships(second.member("token"))
	if !strings.Contains(me, `"role":"developer"`) || strings.Contains(me, `"role":"compliance"`) {
		t.Errorf("me = %s, want developer and no other role", me)
	}
	replaced := r.visit("GET", "/console/v1/me", first.member("token"), "")
	if !people.IsSessionToken(replaced.header.Get("Ringfence-Session")) {
		t.Error("the token of the other session was not replaced after the role had changed")
	}
	wantAnswer(t, "no group", signIn(), http.StatusForbidden, "no_access")
	wantAnswer(t, "operators", signIn("ops"), http.StatusCreated, "")
}

func TestConsole_UnreachableOpenIDProviderGives503(t *testing.T) {
	t.Parallel()
	r, p := newRig(t), newProvider(t)
	r.newConsoleWithProvider(p)
	p.server.Close()
	wantAnswer(t, "start", r.visit("POST", "/console/v1/sign-in/oidc/start", "", "{}"), http.StatusServiceUnavailable,
		"unavailable")
}

func TestConsole_OIDCSignInIsRecentOnlyIfTheProviderAskedForCredentials(t *testing.T) {
	t.Parallel()
	r, p := newRig(t), newProvider(t)
	p.supported = []string{"sub", "auth_time"}
	r.newConsoleWithProvider(p, people.GroupRole{Group: "ops", Role: people.Operator})
	workspace := r.workspace("")
	claims := func(asked time.Time) map[string]any {
		all := map[string]any{"sub": "u1", "groups": []string{"ops"}}
		if !asked.IsZero() {
			all["auth_time"] = asked.Unix()
		}
		return all
	}
	createKey := func(token string) answered {
		return r.visit("POST", "/admin/v1/workspaces/"+workspace+"/api-keys", token, `{"name":"a","access":"read"}`)
	}
	for _, row := range []struct {
		name  string
		asked time.Time
		code  string
	}{
		{name: "asked now", asked: time.Now()},
		{name: "asked by a clock that is fast", asked: time.Now().Add(time.Hour)},
		{name: "asked 16 minutes ago", asked: time.Now().Add(-16 * time.Minute), code: "recent_sign_in_required"},
		{name: "time is missing", code: "recent_sign_in_required"},
	} {
		signedIn := r.signInAt(p, claims(row.asked), "")
		wantAnswer(t, row.name, signedIn, http.StatusCreated, "")
		if got := createKey(signedIn.member("token")).code(); got != row.code {
			t.Errorf("%s: code = %q, want %q", row.name, got, row.code)
		}
	}
	r.exec(`UPDATE sessions SET replace = true`)
	old := r.signInAt(p, claims(time.Now().Add(-16*time.Minute)), "").member("token")
	r.exec(`UPDATE sessions SET replace = true`)
	replaced := r.visit("GET", "/console/v1/me", old, "").header.Get("Ringfence-Session")
	wantAnswer(t, "replaced token", createKey(replaced), http.StatusForbidden, "recent_sign_in_required")

	for name, asked := range map[string]time.Time{"before the start": time.Now().Add(-5 * time.Minute), "never": {}} {
		attempt, address := r.startOIDCWith(`{"again":true}`)
		if !strings.Contains(address, "prompt=login") || !strings.Contains(address, "max_age=0") {
			t.Errorf("address = %s, want prompt=login and max_age=0", address)
		}
		state, code := p.authorize(address, claims(asked))
		wantAnswer(t, name, r.finishOIDC(attempt, state, code), http.StatusUnauthorized, "sign_in_refused")
	}
	attempt, address := r.startOIDCWith(`{"again":true}`)
	state, code := p.authorize(address, claims(time.Now()))
	wantAnswer(t, "asked again", r.finishOIDC(attempt, state, code), http.StatusCreated, "")
}

func TestConsole_OIDCSignInWithoutAuthTimeIsRecent(t *testing.T) {
	t.Parallel()
	r, p := newRig(t), newProvider(t)
	r.newConsoleWithProvider(p, people.GroupRole{Group: "ops", Role: people.Operator})
	workspace := r.workspace("")
	token := r.signInAt(p, map[string]any{"sub": "u1", "groups": []string{"ops"}}, "").member("token")
	wantAnswer(t, "POST api-keys", r.visit("POST", "/admin/v1/workspaces/"+workspace+"/api-keys", token,
		`{"name":"a","access":"read"}`), http.StatusCreated, "")
}
