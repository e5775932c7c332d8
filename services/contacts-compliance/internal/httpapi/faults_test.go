package httpapi_test

import (
	"net/http"
	"testing"
)

func TestRoutes_ErrorNamesEveryInvalidField(t *testing.T) {
	t.Parallel()
	r := start(t)
	contact := "/v1/contacts/" + r.create(t, `{"phone_e164":"+15005550001"}`)
	const consent = "/admin/v1/workspaces/%s/contacts/+15005550001/consent"
	tests := []struct {
		name, method, path, body string
		operator                 bool
		want                     string
	}{
		{
			name: "new contact", method: http.MethodPost, path: "/v1/contacts", body: `{"name":7,"metadata":[]}`,
			want: "phone_e164 is required. name must be a string. metadata must be an object.",
		},
		{
			name: "new contact with a malformed number", method: http.MethodPost, path: "/v1/contacts",
			body: `{"phone_e164":"1","metadata":7}`,
			want: "phone_e164 must be E.164: a plus and 7 to 15 digits, such as +14155550123. " +
				"metadata must be an object.",
		},
		{
			name: "change of a contact", method: http.MethodPatch, path: contact, body: `{"name":7,"metadata":null}`,
			want: "name must be a string. metadata must be an object.",
		},
		{
			name: "opt-out", method: http.MethodPost, path: "/v1/opt-outs", body: `{"reason":[]}`,
			want: "phone_e164 is required. reason must be a string.",
		},
		{
			name: "opt-out: validation_error precedes invalid_phone", method: http.MethodPost, path: "/v1/opt-outs",
			body: `{"phone_e164":"1","reason":[]}`, want: "reason must be a string.",
		},
		{
			name: "consent", method: http.MethodPut, path: consent, body: `{"status":"maybe","evidence":1}`, operator: true,
			want: "status must be consented or withdrawn. source is required. evidence must be text or an object.",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ask := r.customer
			if tt.operator {
				ask = r.operator
			}
			got := ask(t, tt.method, tt.path, tt.body)
			r.checkResponse(t, got, http.StatusUnprocessableEntity, "validation_error")
			if got.message() != tt.want {
				t.Errorf("message = %q, want %q", got.message(), tt.want)
			}
		})
	}
}
