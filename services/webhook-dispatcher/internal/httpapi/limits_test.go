package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// TestLimits_AtAndOnePast counts in characters (contract.md §6).
func TestLimits_AtAndOnePast(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	long := func(n int) string { return strings.Repeat("é", n) }
	address := func(n int) string { return "https://example.com/" + long(n-len("https://example.com/")) }
	for name, row := range map[string]struct{ at, one, code string }{
		"name":        {`{"name":"` + long(200) + `","url":"https://example.com","events":["call.busy"]}`, `{"name":"` + long(201) + `","url":"https://example.com","events":["call.busy"]}`, "validation_error"},
		"description": {strings.TrimSuffix(good, "}") + `,"description":"` + long(500) + `"}`, strings.TrimSuffix(good, "}") + `,"description":"` + long(501) + `"}`, "validation_error"},
		"url":         {`{"name":"a","url":"` + address(2048) + `","events":["call.busy"]}`, `{"name":"a","url":"` + address(2049) + `","events":["call.busy"]}`, "invalid_url"},
	} {
		workspace := uuid.New()
		if got := h.do(workspace, http.MethodPost, collection, row.at); got.status != http.StatusCreated {
			t.Errorf("%s at the limit = %d %v", name, got.status, got.body)
		}
		refused := h.do(workspace, http.MethodPost, collection, row.one)
		inner, _ := refused.body["error"].(map[string]any)
		if message, _ := inner["message"].(string); refused.status != 422 || refused.code() != row.code || !strings.HasPrefix(message, name+" ") {
			t.Errorf("%s past the limit = %d %v", name, refused.status, refused.body)
		}
	}
	workspace := uuid.New()
	id, _ := h.create(workspace)
	if got := h.do(workspace, http.MethodPatch, collection+"/"+id, `{"url":"`+address(2048)+`"}`); got.status != http.StatusOK || got.text("url") != address(2048) {
		t.Errorf("PATCH of the url at the limit = %d", got.status)
	}
	if got := h.do(workspace, http.MethodPatch, collection+"/"+id, `{"url":"`+address(2049)+`"}`); got.code() != "invalid_url" {
		t.Errorf("PATCH of the url past the limit = %d %v", got.status, got.body)
	}
}

// The route's 404 comes before the resource's own rules (contract.md §1).
func TestPatch_AnUnknownOneIsNotFoundWhateverTheBody(t *testing.T) {
	t.Parallel()
	h, workspace := newHouse(t), uuid.New()
	for _, body := range []string{"", "{", "[]", `{"url":7}`, `{"status":"failed"}`, "{}"} {
		for _, id := range []string{uuid.NewString(), "seven"} {
			if got := h.do(workspace, http.MethodPatch, collection+"/"+id, body); got.status != 404 || got.code() != "not_found" {
				t.Errorf("PATCH with %q = %d %v, want 404", body, got.status, got.body)
			}
		}
	}
}
