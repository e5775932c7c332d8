package contract

import (
	"net/http"
	"strings"
	"testing"
)

const preferStrict = "handling=strict"

// TestStrict_RequestWithUnknownNamesIsRefused sends requests with and without Prefer:
// handling=strict. docs/reference/api/README.md describes the header.
func TestStrict_RequestWithUnknownNamesIsRefused(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "10")
	later := inOneHour()
	misspelled := w.order(number(1), "schedule_for", later, "scheduled_for", later)
	for _, row := range []struct {
		name, method, path string
		body               any
		status             int
		names              []string // empty: the request is accepted
	}{
		{
			name: "known fields", method: "POST", path: "/v1/calls", body: w.order(number(1), "scheduled_for", later),
			status: 202,
		},
		{name: "misspelled field", method: "POST", path: "/v1/calls", body: misspelled, names: []string{"schedule_for"}},
		{name: "known parameters", method: "GET", path: "/v1/calls?limit=1&status=busy", status: 200},
		{name: "unknown parameters", method: "GET", path: "/v1/calls?phone=1&from=2", names: []string{"phone", "from"}},
		{
			name: "unknown parameter of a POST", method: "POST", path: "/v1/opt-outs?x=1",
			body: set{"phone_e164": number(2)}, names: []string{"x"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			if len(row.names) == 0 {
				got := w.write.want(t, row.status, row.method, row.path, row.body, "Prefer", preferStrict)
				if applied := got.header.Get("Preference-Applied"); applied != preferStrict {
					t.Errorf("Preference-Applied = %q, want %q", applied, preferStrict)
				}
				return
			}
			got := w.write.refused(t, http.StatusUnprocessableEntity, "validation_error", row.method, row.path, row.body,
				"Prefer", preferStrict)
			for _, name := range row.names {
				if !strings.Contains(got.body, name+" is not a ") {
					t.Errorf("body = %s, want it to name %s", got.body, name)
				}
			}
		})
	}
	got := w.write.refused(t, 422, "invalid_phone", "POST", "/v1/calls", w.order("5"), "Prefer", preferStrict)
	if applied := got.header.Values("Preference-Applied"); len(applied) != 0 {
		t.Errorf("Preference-Applied of a request that the owner refuses = %q, want none", applied)
	}
	got = w.write.want(t, 202, "POST", "/v1/calls", misspelled, "Prefer", "handling=lenient")
	if applied := got.header.Values("Preference-Applied"); len(applied) != 0 {
		t.Errorf("Preference-Applied of a lenient request = %q, want none", applied)
	}
}
