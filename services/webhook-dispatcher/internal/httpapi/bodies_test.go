package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/google/uuid"
)

func (a response) message() string {
	refused, _ := a.body["error"].(map[string]any)
	message, _ := refused["message"].(string)
	return message
}

func TestSubscriptionBodies_ErrorNamesEveryInvalidField(t *testing.T) {
	t.Parallel()
	h, ws := newFixture(t), uuid.New()
	id, _ := h.create(ws)
	const (
		noName    = "name is required: say what this subscription is for."
		noURL     = "url is required: the https address that receives the events."
		notTypes  = "events must be an array of event types."
		notString = "events must be an array of event types, each a string."
	)
	create := func(body string) response { return h.customer(ws, http.MethodPost, collection, body) }
	change := func(body string) response { return h.customer(ws, http.MethodPatch, collection+"/"+id, body) }
	tests := []struct {
		name        string
		send        func(body string) response
		body        string
		code        string
		wantMessage string // the message is not checked if it is ""
	}{
		{
			name: "POST reports all missing fields", send: create, body: `{}`,
			code: "validation_error", wantMessage: noName + " " + noURL,
		},
		{
			name: "POST reports all wrong types", send: create, body: `{"name":7,"url":[],"description":1,"events":"call.busy"}`,
			code:        "validation_error",
			wantMessage: "name must be a string. url must be a string. description must be a string. " + notTypes,
		},
		{
			name: "POST treats null as missing", send: create, body: `{"name":null,"url":null,"description":null,"events":null}`,
			code: "validation_error", wantMessage: noName + " " + noURL,
		},
		{
			name: "POST reports an element of events that is null", send: create,
			body: `{"name":"a","url":"https://example.com","events":[null]}`, code: "validation_error", wantMessage: notString,
		},
		{
			name: "POST reports an element of events that is an object", send: create,
			body: `{"name":"a","url":"https://example.com","events":["call.busy",{}]}`,
			code: "validation_error", wantMessage: notString,
		},
		{
			name: "POST checks types before the url", send: create, body: `{"name":" ","url":"http://example.com","events":[1]}`,
			code: "validation_error", wantMessage: noName + " " + notString,
		},
		{
			name: "POST checks the url before events", send: create, body: `{"name":"a","url":"http://example.com"}`,
			code: "invalid_url",
		},
		{
			name: "POST with an array", send: create, body: `[]`,
			code: "validation_error", wantMessage: "body must be an object, not an array.",
		},
		{
			name: "PATCH reports all wrong types", send: change, body: `{"url":1,"events":{},"status":"nope"}`,
			code: "validation_error", wantMessage: "url must be a string. " + notTypes,
		},
		{
			name: "PATCH reports an element of events that is null", send: change, body: `{"events":["call.busy",null]}`,
			code: "validation_error", wantMessage: notString,
		},
		{
			name: "PATCH with a status that is null", send: change, body: `{"status":null}`,
			code: "invalid_status", wantMessage: "status must be active or paused, not null.",
		},
		{
			name: "PATCH with a status that is a number", send: change, body: `{"status":1}`,
			code: "invalid_status", wantMessage: "status must be active or paused, not 1.",
		},
		{
			name: "PATCH with a status that is an object", send: change, body: `{"status":{}}`,
			code: "invalid_status", wantMessage: "status must be active or paused, not {}.",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.send(tt.body)
			if got.status != http.StatusUnprocessableEntity {
				t.Errorf("%s = %d, want 422", tt.body, got.status)
			}
			if got.code() != tt.code {
				t.Errorf("%s: code = %q, want %q", tt.body, got.code(), tt.code)
			}
			if tt.wantMessage != "" && got.message() != tt.wantMessage {
				t.Errorf("%s: message = %q, want %q", tt.body, got.message(), tt.wantMessage)
			}
		})
	}
}
