package callrequests

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/testkit"
)

// FuzzOrder checks that every body gives either a call request within the limits or a 422 error
// that names a field.
func FuzzOrder(f *testing.F) {
	good := `{"agent_id":"0190c2a0-7b2c-7c3e-8f00-aabbccddeeff","to":"+14155550123","contact_id":"0190c2a0-7b2c-7c3e-8f00-aabbccddeeff","variables":{"a":1},` +
		`"external_ref":"order-1","idempotency_key":"k","scheduled_for":"2026-12-04T09:00:00+02:00","schedule_if_outside_hours":true}`
	for _, body := range append(testkit.Mutations(good), good) {
		f.Add([]byte(body), "")
		f.Add([]byte(body), "a key")
	}
	now := time.Date(2026, 6, 4, 9, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, raw []byte, header string) {
		var body map[string]json.RawMessage
		if httpserver.DecodeJSON(httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(raw)), &body) != nil {
			return
		}
		if key, err := readKey(body, []string{header}); err != nil {
			mustName(t, err, "idempotency_key", "Idempotency-Key")
		} else {
			if len(key) < 1 {
				t.Errorf("%q, %q: key is empty", raw, header)
			}
			if len(key) > maxKey {
				t.Errorf("%q, %q: length of the key = %d, want at most %d", raw, header, len(key), maxKey)
			}
			if rest := strings.Trim(key, printable()); rest != "" {
				t.Errorf("%q, %q: characters of the key that are not printable ASCII = %q, want none", raw, header, rest)
			}
		}
		order, err := readOrder(body, now)
		if err != nil {
			mustName(t, err, "agent_id", "to", "contact_id", "variables", "external_ref", "scheduled_for", "schedule_if_outside_hours")
			return
		}
		if _, ok := phone.Parse(order.To); !ok {
			t.Errorf("%q: to %q", raw, order.To)
		}
		if order.ScheduledFor != nil && (order.ScheduledFor.Before(now) || order.ScheduledFor.After(now.Add(maxAhead))) {
			t.Errorf("%q: scheduled for %s", raw, order.ScheduledFor)
		}
		if order.ExternalRef != nil && (utf8.RuneCountInString(*order.ExternalRef) > maxExternalRef || strings.ContainsRune(*order.ExternalRef, 0)) {
			t.Errorf("%q: external_ref %q", raw, *order.ExternalRef)
		}
		if len(order.Variables) > 0 && (order.Variables[0] != '{' || !json.Valid(order.Variables)) {
			t.Errorf("%q: variables %s", raw, order.Variables)
		}
		if len(bodyFingerprint(body)) == 0 {
			t.Errorf("%q has no fingerprint", raw)
		}
	})
}

func mustName(t *testing.T, err error, fields ...string) {
	t.Helper()
	var refused *apierr.Error
	if !errors.As(err, &refused) {
		t.Fatalf("error = %v, want a %T", err, refused)
	}
	if refused.Status != http.StatusUnprocessableEntity {
		t.Fatalf("refused.Status = %v, want %v", refused.Status, http.StatusUnprocessableEntity)
	}
	for _, field := range fields {
		if strings.HasPrefix(refused.Message, field+" ") {
			return
		}
	}
	t.Fatalf("message %q names none of %v", refused.Message, fields)
}

func printable() (all string) {
	for r := ' '; r <= '~'; r++ {
		all += string(r)
	}
	return all
}
