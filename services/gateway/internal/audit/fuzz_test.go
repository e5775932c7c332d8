package audit

import (
	"bytes"
	"encoding/json"
	"testing"

	"ringfence.dev/libs/testkit"
)

// FuzzState checks that a state is JSON without the value of any secret member.
func FuzzState(f *testing.F) {
	for _, body := range append(testkit.Mutations(`{"name":"x","signing_secret":"whsec_1","nested":[{"api_key":{"key":"whsec_1"}}]}`), testkit.Bodies()...) {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		state := State("contact", body)
		if state == nil {
			return
		}
		if !json.Valid(state) {
			t.Errorf("%q is kept as %q", body, state)
		}
		if again := State("contact", state); again != nil && !bytes.Equal(again, state) {
			t.Errorf("%q is kept as %q, then as %q", body, state, again)
		}
		var members map[string]json.RawMessage
		_ = json.Unmarshal(state, &members)
		for name, value := range members {
			if (isSecret(name) || (isPersonal("contact", name) && string(value) != "null")) &&
				string(value) != `"`+redacted+`"` {
				t.Errorf("%q is kept with %s = %s", body, name, value)
			}
		}
	})
}
