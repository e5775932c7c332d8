package agents

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/testkit"
)

// FuzzAgent checks that every accepted agent can be published. If the same change is applied twice,
// the agent must be the same as after one change.
func FuzzAgent(f *testing.F) {
	good := `{"name":"Ada","from_number":"+15005550006","max_call_seconds":60,"instructions":"x","voice":"y","outcomes":["a"],"more":{"deep":[1e400000]}}`
	for _, body := range append(testkit.Mutations(good), good) {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var body map[string]json.RawMessage
		if json.Unmarshal(raw, &body) != nil || bytes.Contains(raw, []byte{0}) {
			return
		}
		a, err := New(uuid.Nil, uuid.Nil, body)
		if err != nil {
			return
		}
		if a.MaxCallSeconds < 1 {
			t.Errorf("a.MaxCallSeconds = %v, want at least 1", a.MaxCallSeconds)
		}
		if a.MaxCallSeconds > maxMaxCallSeconds {
			t.Errorf("a.MaxCallSeconds = %v, want at most %v", a.MaxCallSeconds, maxMaxCallSeconds)
		}
		if a.Name == "" {
			t.Errorf("a.Name is empty")
		}
		if len(a.Settings) > maxSettings {
			t.Fatalf("length of a.Settings = %v, want at most %v", len(a.Settings), maxSettings)
		}
		if !json.Valid(a.Settings) {
			t.Errorf("json.Valid(a.Settings) = false, want true")
		}
		message, err := a.Event(time.Now())
		if err != nil {
			t.Fatalf("Event of %s: %v", raw, err)
		}
		if _, err := proto.Marshal(message); err != nil {
			t.Fatalf("Event of %s: %v", raw, err)
		}
		before := string(a.Settings)
		if err := a.Change(body); err != nil {
			t.Errorf("%s again: Change: %v", raw, err)
		} else if string(a.Settings) != before {
			t.Errorf("%s again: a.Settings = %q, want %q", raw, string(a.Settings), before)
		}
	})
}
