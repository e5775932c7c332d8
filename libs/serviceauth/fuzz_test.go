package serviceauth

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// isSignedBy checks that the signature of the token is valid and canonically encoded. It does not
// check the claims of the token.
func isSignedBy(k *Keys, text string) bool {
	dot := max(strings.LastIndexByte(text, '.'), 0)
	raw, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimPrefix(text[dot:], "."))
	public, _ := k.private.Public().(ed25519.PublicKey)
	return err == nil && ed25519.Verify(public, []byte(text[:dot]), raw)
}

// FuzzRequireCaller checks that every token without a signature of the gateway gets 401 with the
// error body.
func FuzzRequireCaller(f *testing.F) {
	made := func(self string, trusted ...string) *Keys {
		k, err := New(self, Config{SigningKey: base64.StdEncoding.EncodeToString([]byte(strings.Repeat(self[:1], ed25519.SeedSize))), TrustedKeys: trusted})
		if err != nil {
			f.Fatal(err)
		}
		return k
	}
	gateway := made("gateway")
	calls := made("calls", trusts(gateway))
	token, err := gateway.SignCaller("calls", Caller{WorkspaceID: uuid.Nil, RequestID: uuid.Nil, Access: Write})
	if err != nil {
		f.Fatal(err)
	}
	parts := strings.Split(token, ".")
	encode := base64.RawURLEncoding.EncodeToString
	none := encode([]byte(`{"alg":"none","typ":"JWT"}`))
	for _, seed := range []string{
		token, token[:len(token)-1], token + "A", token + "=", parts[0] + "." + parts[1] + ".", none + "." + parts[1] + ".", none + "." + parts[1] + "." + parts[2],
		encode([]byte(`{"alg":"HS256"}`)) + "." + parts[1] + "." + parts[2], parts[0] + "." + encode([]byte(`{"iss":["gateway"],"aud":"calls","exp":1e999}`)) + "." + parts[2],
		parts[0] + "." + encode([]byte(`{"iss":"nobody"}`)) + "." + parts[2], "", "..", "...", "a.b.c", " " + token, token + "\x00", strings.Repeat(".", 5000), strings.Repeat("A", 60000),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, middleware := range []func(http.Handler) http.Handler{calls.RequireCaller, calls.RequireOperator} {
			status, seen, body := call(middleware, text)
			if status == http.StatusOK && isSignedBy(gateway, text) && seen.WorkspaceID == uuid.Nil {
				continue
			}
			var refusal struct {
				Error struct{ Code, Message string }
			}
			if status != http.StatusUnauthorized {
				t.Errorf("%q: status = %v, want %v", text, status, http.StatusUnauthorized)
			}
			if err := json.Unmarshal([]byte(body), &refusal); err != nil {
				t.Fatalf("%q: json.Unmarshal: %v", text, err)
			}
			if refusal.Error.Code != "invalid_api_key" {
				t.Errorf("%q: refusal.Error.Code = %q, want \"invalid_api_key\"", text, refusal.Error.Code)
			}
		}
		if _, err := gateway.verify(text, forService, time.Now()); err == nil {
			t.Errorf("%q is a service's token", text)
		}
	})
}
