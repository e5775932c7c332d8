package contacts_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
)

// FuzzDocument checks that merged documents are within the limits and parse to the same value.
func FuzzDocument(f *testing.F) {
	for _, text := range append(append(testkit.Values(), testkit.Bodies()...),
		`{"a":null,"b":{"c":[1]},"time_zone":"Europe/Berlin"}`, `{"time_zone":"../../etc/passwd"}`, `{"time_zone":"Local"}`) {
		f.Add([]byte(text), []byte(`{"a":1}`))
		f.Add([]byte(`{"a":1}`), []byte(text))
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		merged := contacts.Document{}
		for _, raw := range [][]byte{first, second} {
			patch, err := contacts.ParseDocument("metadata", raw)
			if err == nil {
				merged, err = merged.Merge("metadata", patch)
			}
			if err == nil {
				_, err = merged.TimeZone()
			}
			var refused *apierr.Error
			if err != nil {
				if !errors.As(err, &refused) {
					t.Fatalf("%q: %v, want a short refusal that names metadata", raw, err)
				}
				if !strings.HasPrefix(refused.Message, "metadata") {
					t.Fatalf("%q: message = %s, want it to begin with %q", raw, refused.Message, "metadata")
				}
				if len(refused.Message) > 1<<10 {
					t.Fatalf("%q: %v, want a short refusal that names metadata", raw, err)
				}
				return
			}
		}
		encoded := merged.Encode()
		if len(merged) > contacts.MaxKeys {
			t.Fatalf("merge of %q and %q = %q, want it within the limits", first, second, encoded)
		}
		if len(encoded) > contacts.MaxBytes {
			t.Fatalf("merge of %q and %q = %q, want it within the limits", first, second, encoded)
		}
		if !json.Valid(encoded) {
			t.Fatalf("json.Valid(encoded) = false, want true")
		}
		if !utf8.Valid(encoded) {
			t.Fatalf("utf8.Valid(encoded) = false, want true")
		}
		again, err := contacts.ParseDocument("metadata", encoded)
		if err != nil {
			t.Fatalf("ParseDocument: %v", err)
		}
		if got := string(again.Encode()); got != string(encoded) {
			t.Fatalf("again.Encode() = %q, want %q", got, string(encoded))
		}
	})
}
