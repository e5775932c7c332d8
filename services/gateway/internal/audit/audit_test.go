package audit

import (
	"strings"
	"testing"
)

func TestState_ContainsNoSecret(t *testing.T) {
	t.Parallel()
	got := string(
		State(
			"agent",
			[]byte(
				`{"id":"7","signing_secret":"whsec_abcdef","key":"rf_live_x","nested":{"Token":"t",
					"list":[{"api_key":["k1","k2"]}]},
		"keywords":["a"],"key_id":"9","amount":0.10}`,
			),
		),
	)
	for _, secret := range []string{"whsec", "rf_live", `"t"`, "k1"} {
		if strings.Contains(got, secret) {
			t.Errorf("the state contains %s: %s", secret, got)
		}
	}
	for _, kept := range []string{`"id":"7"`, `"keywords":["a"]`, `"key_id":"9"`, `"amount":0.10`, redacted} {
		if !strings.Contains(got, kept) {
			t.Errorf("state lacks %s: %s", kept, got)
		}
	}
}

func TestState_IsNilIfTheBodyIsNotJSONOrTooLarge(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"an empty body": " ", "a body that is not JSON": "<html>",
		"a body above the limit": `"` + strings.Repeat("x", MaxState) + `"`} {
		if got := State("agent", []byte(body)); got != nil {
			t.Errorf("%s = %.20s, want nothing", name, got)
		}
	}
}
