package console

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc/oidctest"
	"github.com/google/uuid"
	"golang.org/x/oauth2"
)

const clientID = "ringfence"

// provider is an OpenID provider at which the next person is already signed in.
type provider struct {
	server *httptest.Server
	key    *ecdsa.PrivateKey

	mu    sync.Mutex
	next  map[string]any        // claims of the person
	codes map[string]url.Values // parameters of the authorization request of each code
}

func newProvider() (*provider, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	p := &provider{key: key, codes: map[string]url.Values{}}
	discovery := &oidctest.Server{
		PublicKeys: []oidctest.PublicKey{{PublicKey: key.Public(), KeyID: "k", Algorithm: "ES256"}},
		Algorithms: []string{"ES256"},
	}
	mux := http.NewServeMux()
	mux.Handle("/", discovery)
	mux.HandleFunc("GET /auth", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	p.server = httptest.NewServer(mux)
	discovery.SetIssuer(p.server.URL)
	return p, nil
}

// settings returns environment variables of the gateway.
func (p *provider) settings() []string {
	return []string{"OIDC_ISSUER=" + p.server.URL, "OIDC_CLIENT_ID=" + clientID, "OIDC_GROUP_ROLES=staff=operator"}
}

// signInAs sets the person of the next sign-in.
func (p *provider) signInAs(subject, name string, groups ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = map[string]any{"sub": subject, "name": name, "groups": groups}
}

func (p *provider) authorize(w http.ResponseWriter, r *http.Request) {
	code := uuid.NewString()
	p.mu.Lock()
	p.codes[code] = r.URL.Query()
	p.mu.Unlock()
	back := r.FormValue("redirect_uri") + "?" + url.Values{"code": {code}, "state": {r.FormValue("state")}}.Encode()
	http.Redirect(w, r, back, http.StatusFound)
}

func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	query, known := p.codes[r.PostFormValue("code")]
	delete(p.codes, r.PostFormValue("code"))
	if !known || oauth2.S256ChallengeFromVerifier(r.PostFormValue("code_verifier")) != query.Get("code_challenge") {
		http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
		return
	}
	now := time.Now()
	claims := map[string]any{"iss": p.server.URL, "aud": clientID, "nonce": query.Get("nonce"), "iat": now.Unix(),
		"auth_time": now.Unix(), "exp": now.Add(time.Minute).Unix()}
	for name, value := range p.next {
		claims[name] = value
	}
	text, err := json.Marshal(claims)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"access_token":"a","token_type":"Bearer","id_token":%q}`,
		oidctest.SignIDToken(p.key, "k", "ES256", string(text)))
}
