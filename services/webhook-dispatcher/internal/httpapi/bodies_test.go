package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// TestBodies_ARefusalNamesTheField holds for what the generated types of the bodies refuse, and for what they would let through.
func TestBodies_ARefusalNamesTheField(t *testing.T) {
	t.Parallel()
	h, ws := newHouse(t), uuid.New()
	id, _ := h.create(ws)
	for body, want := range map[string]string{
		`{"name":7,"url":"https://example.com","events":["call.busy"]}`:                   "name must be a string",
		`{"name":"a","events":["call.busy"]}`:                                             "url is required",
		`{"name":"a","url":null,"events":["call.busy"]}`:                                  "url is required",
		`{"name":"a","url":[],"events":["call.busy"]}`:                                    "url must be a string",
		`{"name":"a","url":"https://example.com","events":[null]}`:                        "events must be an array of event types, each a string",
		`{"name":"a","url":"https://example.com","events":["call.busy",{}]}`:              "events must be an array of event types, each a string",
		`{"name":"a","url":"https://example.com","events":"call.busy"}`:                   "events must be an array",
		`{"name":"a","url":"https://example.com","events":["call.busy"],"description":1}`: "description must be a string",
		`[]`: "body must be an object",
	} {
		if got := h.do(ws, http.MethodPost, collection, body); got.code() != "validation_error" || !strings.HasPrefix(got.message(), want) {
			t.Errorf("POST %s = %d %v, want %q", body, got.status, got.body, want)
		}
	}
	for body, want := range map[string]string{
		`{"url":1}`:                     "url must be a string",
		`{"status":true}`:               "status must be a string",
		`{"events":{}}`:                 "events must be an array",
		`{"events":["call.busy",null]}`: "events must be an array of event types, each a string",
	} {
		if got := h.do(ws, http.MethodPatch, collection+"/"+id, body); got.code() != "validation_error" || !strings.HasPrefix(got.message(), want) {
			t.Errorf("PATCH %s = %d %v, want %q", body, got.status, got.body, want)
		}
	}
}

func (a answer) message() string {
	refused, _ := a.body["error"].(map[string]any)
	message, _ := refused["message"].(string)
	return message
}
