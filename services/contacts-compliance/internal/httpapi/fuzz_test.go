package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit"
)

// FuzzAPI sends requests to the service as a customer and as an operator of one workspace.
func FuzzAPI(f *testing.F) {
	r := start(f)
	id := r.create(f, `{"phone_e164":"+14155550100","name":"Ann","metadata":{"k":1}}`)
	home := "/admin/v1/workspaces/" + r.workspace.String()
	r.operator(f, http.MethodPut, "/admin/v1/workspaces/%s/contacts/+14155550100/consent",
		`{"status":"consented","source":"form"}`)
	list, _ := r.operator(f, http.MethodPost, "/admin/v1/workspaces/%s/opt-out-imports",
		`{"reason":"bought"}`).body["id"].(string)
	contactBody := `{"phone_e164":"+14155550101","name":"Ann","metadata":{"k":{"a":[1]},"time_zone":"Europe/Berlin"}}`
	testkit.Surface{
		Handler: r.handler,
		Prepare: func(t testing.TB, request *http.Request) {
			token, err := r.peers["gateway"].SignCaller(service, serviceauth.Caller{
				WorkspaceID: r.workspace, RequestID: uuid.Must(uuid.NewV7()), Access: serviceauth.Write, Operator: "ann"})
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set(serviceauth.CallerHeader, token)
		},
		Routes: []string{
			"GET /v1/contacts", "POST /v1/contacts", "GET /v1/contacts/{}", "PATCH /v1/contacts/{}", "POST /v1/opt-outs",
			"GET /v1/opt-outs/{}",
			"DELETE /v1/opt-outs/{}",
			"GET /v1/decisions",
			"POST /v1/decisions/preview",
			"GET " + home + "/contacts/{}/consent",
			"PUT " + home + "/contacts/{}/consent",
			"GET " + home + "/contacts/{}/preview",
			"GET " + home + "/consent-records",
			"GET " + home + "/consent-records/{}",
			"PUT " + home + "/contacts/+14155550100/consent", "GET " + home + "/contacts/+14155550100/preview",
			"GET " + home + "/decisions", "GET " + home + "/decisions/{}", "DELETE " + home + "/contacts/{}",
			"GET " + home + "/opt-out-imports", "POST " + home + "/opt-out-imports", "GET " + home + "/opt-out-imports/{}",
			"PUT " + home + "/opt-out-imports/{}/parts/1", "PUT " + home + "/opt-out-imports/" + list + "/parts/{}",
			"POST " + home + "/opt-out-imports/{}/start",
		},
		IDs: []string{"+14155550100", id, list},
		Bodies: map[string][]string{
			"POST /v1/contacts": {contactBody, `{"phone_e164":"+14155550102","email":"a@b.example","external_id":"7",
				"consent":{"status":"consented","source":"form","evidence":{"a":1}}}`},
			"POST /v1/decisions/preview": {`{"to":"+14155550100","scheduled_for":"2026-12-04T09:00:00+02:00"}`},
			"PATCH /v1/contacts/{}": {`{"email":null,"external_id":"8","consent":{"status":"withdrawn","source":"call"}}`,
				`{"name":"Eve","metadata":{"k":null,"time_zone":"Europe/Berlin"}}`,
				`{"metadata":{"time_zone":1}}`, `{"metadata":{"time_zone":"` + strings.Repeat("x", 3000) + `"}}`},
			"POST /v1/opt-outs": {`{"phone_e164":"+14155550100","reason":"asked"}`},
			"PUT " + home + "/contacts/+14155550100/consent": {`{"status":"consented","source":"form","evidence":{"a":1}}`,
				`{"status":"withdrawn","source":"form","evidence":"said so"}`},
		},
		Queries: map[string][]string{
			"GET /v1/contacts": {"limit", "starting_after", "phone", "q", "dnd_status",
				"consent_status", "email", "external_id", "unknown"},
			"GET /v1/decisions":                              {"limit", "starting_after", "phone", "call_request_id"},
			"GET " + home + "/consent-records":               {"limit", "starting_after", "phone"},
			"GET " + home + "/contacts/+14155550100/preview": {"at"},
			"GET " + home + "/decisions":                     {"limit", "starting_after", "phone", "call_request_id"},
		},
	}.Fuzz(f)
}
