package secrets

import (
	"net/http"
	"strings"
	"testing"
)

// FuzzBearer checks that a returned secret is part of the header and is not too long.
func FuzzBearer(f *testing.F) {
	key, _ := GenerateAPIKey(false)
	for _, header := range []string{"Bearer " + key, "bearer " + key, "Bearer  " + key + " ", "Bearer", "Bearer ", "Basic " + key, "Bearer\t" + key, key, "Bearer " + key + ", Bearer " + key,
		"Bearer rf_live_", "Bearer rf_live_0000000__" + strings.Repeat("é", 26), "Bearer " + strings.Repeat("a", 513), "Bearer \x00", "\xff"} {
		f.Add(header, "")
		f.Add(header, header)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		header := http.Header{"Authorization": {first}}
		if second != "" {
			header.Add("Authorization", second)
		}
		secret, ok := Bearer(header)
		if !ok {
			if secret != "" && IsAPIKey(secret) {
				t.Errorf("%q, %q: refused, and yet %q", first, second, secret)
			}
			return
		}
		if second != "" {
			t.Errorf("%q, %q: second = %q, want \"\"", first, second, second)
		}
		if secret == "" {
			t.Errorf("%q, %q: secret is empty", first, second)
		}
		if len(secret) > maxSecret {
			t.Fatalf("%q, %q: length of secret = %v, want at most %v", first, second, len(secret), maxSecret)
		}
		if !strings.EqualFold(first[:len("Bearer ")], "Bearer ") {
			t.Errorf("header %q, %q: a secret was read, want the prefix Bearer", first, second)
		}
		if !strings.Contains(first, secret) {
			t.Errorf("%q, %q: first = %q, want it to contain %q", first, second, first, secret)
		}
		marked := strings.HasPrefix(secret, keyPrefix) || strings.HasPrefix(secret, testKeyPrefix)
		if IsAPIKey(secret) && (!marked || len(secret) != len(key)) {
			t.Errorf("%q has the form of a key", secret)
		}
	})
}
