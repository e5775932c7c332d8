package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// Lengths are counted in characters, not bytes (docs/reference/api/README.md#field-sizes).
func TestSubscriptionBodies_AcceptMaximumLengthsInCharacters(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	long := func(n int) string { return strings.Repeat("é", n) }
	address := func(n int) string { return "https://example.com/" + long(n-len("https://example.com/")) }
	for name, row := range map[string]struct{ at, one, code string }{
		"name":        {`{"name":"` + long(200) + `","url":"https://example.com","events":["call.busy"]}`, `{"name":"` + long(201) + `","url":"https://example.com","events":["call.busy"]}`, "validation_error"},
		"description": {strings.TrimSuffix(validSubscription, "}") + `,"description":"` + long(500) + `"}`, strings.TrimSuffix(validSubscription, "}") + `,"description":"` + long(501) + `"}`, "validation_error"},
		"url":         {`{"name":"a","url":"` + address(2048) + `","events":["call.busy"]}`, `{"name":"a","url":"` + address(2049) + `","events":["call.busy"]}`, "invalid_url"},
	} {
		workspace := uuid.New()
		wantStatus(t, name+" at the limit", h.customer(workspace, http.MethodPost, collection, row.at), 201, "")
		refused := h.customer(workspace, http.MethodPost, collection, row.one)
		wantStatus(t, name+" one character longer", refused, 422, row.code)
		if !strings.HasPrefix(refused.message(), name+" ") {
			t.Errorf("%s one character longer: message = %q, want it to name the field", name, refused.message())
		}
	}
	workspace := uuid.New()
	id, _ := h.create(workspace)
	changed := h.customer(workspace, http.MethodPatch, collection+"/"+id, `{"url":"`+address(2048)+`"}`)
	wantStatus(t, "PATCH of the url at the limit", changed, 200, "")
	wantEqual(t, "url", changed.text("url"), address(2048))
	refused := h.customer(workspace, http.MethodPatch, collection+"/"+id, `{"url":"`+address(2049)+`"}`)
	wantStatus(t, "PATCH of the url one character longer", refused, 422, "invalid_url")
}

// An unknown subscription gives 404 before the body is checked
// (docs/reference/api/README.md#order-of-checks).
func TestPatch_UnknownSubscriptionIsNotFoundForAnyBody(t *testing.T) {
	t.Parallel()
	h, workspace := newFixture(t), uuid.New()
	for _, body := range []string{"", "{", "[]", `{"url":7}`, `{"status":"failed"}`, "{}"} {
		for _, id := range []string{uuid.NewString(), "seven"} {
			wantStatus(t, "PATCH "+body, h.customer(workspace, http.MethodPatch, collection+"/"+id, body), 404, "not_found")
		}
	}
}
