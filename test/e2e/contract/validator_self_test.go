package contract_test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/test/e2e/contract"
)

const (
	anID    = "0197370d-4c18-7e6b-8b1d-9d2f6c3a4e55"
	request = `{"id":"` + anID + `","status":"queued","call_id":null,"to":"+14155550101","agent_id":"` + anID + `","external_ref":null,` +
		`"scheduled_for":"2026-06-04T09:00:01.048Z","error_code":null,"error_detail":null,"dialed_at":null,"completed_at":null,` +
		`"created_at":"2026-06-04T09:00:01.048Z","updated_at":"2026-06-04T09:00:01.000Z"}`
	call = `{"call_id":"` + anID + `","call_request_id":"` + anID + `","direction":"outbound",` +
		`"from":"+15005550006","to":"+14155550101","agent_id":"` + anID + `","contact_id":null,` +
		`"campaign_id":null,"status":"completed","hangup_cause":"normal_clearing","timings":{"queued_at":null,"dialed_at":null,"answered_at":null,` +
		`"ended_at":null,"ring_seconds":3,"talk_seconds":null,"total_seconds":null},"credits_charged":0.035,"outcome":null,"disposition":"human",` +
		`"summary":{"outcome":"x","confidence":0.9,"scheduled_for":"2026-06-05T10:00:00.000-07:00","more":1},` +
		`"external_ref":null}`
	event = `{"id":"` + anID + `","type":"call.completed","api_version":"2026-06-04",` +
		`"created_at":"2026-06-04T09:00:01.000Z","workspace_id":"` + anID +
		`","sequence":3,"data":` + call + `}`
)

func load(t *testing.T) *contract.Document {
	t.Helper()
	d, err := contract.Load(openapi.Description)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func headers(more ...string) http.Header {
	h := http.Header{}
	for name, value := range map[string]string{
		"RateLimit-Policy": `"default";q=120;w=60`, "RateLimit": `"default";r=119;t=1`, "X-RateLimit-Limit": "120",
		"X-RateLimit-Remaining": "119", "X-RateLimit-Reset": "1", "Service-Version": "2026-06-04", "Content-Type": "application/json",
	} {
		h.Set(name, value)
	}
	for i := 0; i < len(more); i += 2 {
		if h.Set(more[i], more[i+1]); more[i+1] == "" {
			h.Del(more[i])
		}
	}
	return h
}

func refusal(code string) string { return `{"error":{"code":"` + code + `","message":"Why."}}` }

func TestAnswer_RefusesUndocumentedResponses(t *testing.T) {
	t.Parallel()
	d := load(t)
	change := func(body, from, to string) string {
		if !strings.Contains(body, from) {
			t.Fatalf("%s is not in %s", from, body)
		}
		return strings.Replace(body, from, to, 1)
	}
	path, calls := "/v1/call-requests/"+anID, "/v1/calls/"+anID
	for _, row := range []struct {
		name, method, path string
		status             int
		header             http.Header
		body               string
		wrong              string // a part of the expected error; "" if no error is expected
	}{
		{"a documented response", "GET", path, 200, headers(), request, ""},
		{"a content type with its charset", "GET", path, 200, headers("Content-Type", "application/json; charset=utf-8"), request, ""},
		{"HEAD has no body", "HEAD", path, 200, headers(), "", ""},
		{"a documented error", "GET", path, 404, headers(), refusal("not_found"), ""},
		{"an error without a route", "GET", "/v1/nothing", 404, headers(), refusal("not_found"), ""},
		{"a method that the path does not have", "PUT", "/v1/calls", 405, headers(), refusal("method_not_allowed"), ""},
		{"an unknown method", "BREW", "/v1/calls", 405, headers(), refusal("method_not_allowed"), ""},
		{"a whole call", "GET", calls, 200, headers(), call, ""},
		{"a rate limit with Retry-After", "GET", path, 429, headers("Retry-After", "1"), refusal("rate_limited"), ""},

		{"an extra member", "GET", path, 200, headers(), change(request, `"status"`, `"extra":1,"status"`), "extra"},
		{"an extra member deep inside", "GET", calls, 200, headers(), change(call, `"ring_seconds"`, `"extra":1,"ring_seconds"`), "extra"},
		{"an extra member of the error", "GET", path, 404, headers(), `{"error":{"code":"not_found","message":"Why.","at":1}}`, "at"},
		{"an extra member beside the error", "GET", path, 404, headers(), `{"error":{"code":"not_found","message":"Why."},"at":1}`, "at"},
		{"a missing member", "GET", path, 200, headers(), change(request, `"error_code":null,`, ""), "error_code"},
		{
			"no call_request_id", "GET", calls, 200, headers(), change(call, `"call_request_id":"`+anID+`",`, ""),
			"call_request_id",
		},
		{"a wrong type", "GET", path, 200, headers(), change(request, `"+14155550101"`, "14155550101"), "string"},
		{"null for a required value", "GET", path, 200, headers(), change(request, `"+14155550101"`, "null"), "null"},
		{"an unknown status of the request", "GET", path, 200, headers(), change(request, `"queued"`, `"waiting"`), "allowed"},
		{"an invalid phone number", "GET", path, 200, headers(), change(request, `"+14155550101"`, `"14155550101"`),
			"regular expression"},
		{"a float for an integer", "GET", calls, 200, headers(), change(call, `"ring_seconds":3`, `"ring_seconds":3.5`), "integer"},
		{"text for a number", "GET", calls, 200, headers(), change(call, `0.035`, `"0.035"`), "number"},
		{"an id in capitals", "GET", path, 200, headers(), change(request, anID, strings.ToUpper(anID)), "does not match"},
		{"microseconds", "GET", path, 200, headers(), change(request, ".048Z", ".048123Z"), "does not match"},
		{"no decimals", "GET", path, 200, headers(), change(request, ".048Z", "Z"), "does not match"},
		{"one decimal", "GET", path, 200, headers(), change(request, ".048Z", ".0Z"), "does not match"},
		{
			"scheduled_for without decimals", "GET", calls, 200, headers(), change(call, "10:00:00.000", "10:00:00"),
			"does not match",
		},
		{"a time with an offset", "GET", path, 200, headers(), change(request, ".048Z", ".048+00:00"), "does not match"},
		{"no offset", "GET", path, 200, headers(), change(request, ".048Z", ".048"), "does not match"},
		{"an impossible date", "GET", path, 200, headers(), change(request, "2026-06-04", "2026-02-30"), "out of range"},
		{
			"scheduled_for in UTC", "GET", calls, 200, headers(), change(call, ".000-07:00", ".000Z"),
			"does not match",
		},
		{"an undocumented status", "GET", path, 204, headers(), "", "status 204"},
		{"an undocumented error", "GET", path, 409, headers(), refusal("not_cancelable"), "not_cancelable"},
		{"an undocumented code", "GET", path, 404, headers(), refusal("transcript_not_available"), "transcript_not_available"},
		{"an unknown error code", "GET", path, 404, headers(), refusal("gone"), "gone"},
		{"a code of another status", "GET", path, 400, headers(), refusal("method_not_allowed"), "want 405"},
		{"no message", "GET", path, 404, headers(), `{"error":{"code":"not_found"}}`, "message"},
		{"no error body", "GET", path, 404, headers(), "", "EOF"},
		{"plain text instead of JSON", "GET", path, 404, headers("Content-Type", "text/plain"), "404 page not found",
			"content type"},
		{"two JSON values", "GET", path, 404, headers(), refusal("not_found") + "{}", "more text after"},
		{"no Service-Version", "GET", path, 200, headers("Service-Version", ""), request, "Service-Version"},
		{"another Service-Version", "GET", path, 200, headers("Service-Version", "2026-06-05"), request, "Service-Version"},
		{"no RateLimit", "GET", path, 200, headers("RateLimit", ""), request, "RateLimit"},
		{"a limit that is no number", "GET", path, 200, headers("X-RateLimit-Limit", "many"), request, "X-RateLimit-Limit"},
		{"a header twice", "GET", path, 200, http.Header{"X-Ratelimit-Reset": {"1", "1"}}, request, "X-RateLimit-Reset is there 2 times"},
		{"HEAD without the required headers", "HEAD", path, 200, headers("RateLimit", ""), "", "RateLimit"},
		{"a rate limit without Retry-After", "GET", path, 429, headers(), refusal("rate_limited"), "Retry-After"},
		{"a secret without Cache-Control", "POST", "/v1/webhook-subscriptions/" + anID + "/rotate-secret", 200, headers(),
			`{"signing_secret":"whsec_a","store_this":"x"}`, "Cache-Control"},
		{"a secret that is not masked", "GET", "/v1/webhook-subscriptions", 200, headers(), `{"has_more":false,"data":[{"id":"` + anID + `","name":"x","url":"https://x.y","events":[],` +
			`"status":"active","signing_secret":"whsec_abcdefgh","consecutive_failures":0,"last_success_at":null,` +
			`"last_failure_at":null,"created_at":"2026-06-04T09:00:01.000Z"}]}`, "signing_secret"},
		{"success without a route", "GET", "/v1/nothing", 200, headers(), "{}", "missing"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			address, err := url.Parse(row.path)
			if err != nil {
				t.Fatal(err)
			}
			err = d.Answer(row.method, address, row.status, row.header, []byte(row.body))
			switch {
			case row.wrong == "" && err != nil:
				t.Error(err)
			case row.wrong != "" && (err == nil || !strings.Contains(err.Error(), row.wrong)):
				t.Errorf("error %v, want one about %q", err, row.wrong)
			}
		})
	}
}

func TestDelivery_RefusesUndocumentedDeliveries(t *testing.T) {
	t.Parallel()
	d := load(t)
	sent := func(more ...string) http.Header {
		return headers(append([]string{"X-Service-Signature", "t=1,v1=" + strings.Repeat("0a", 32), "X-Service-Event-Id", anID, "X-Service-Delivery-Id", anID,
			"X-Service-Delivery-Attempt", "1", "User-Agent", "x"}, more...)...)
	}
	for _, row := range []struct {
		name   string
		header http.Header
		body   string
		wrong  string
	}{
		{"a documented delivery", sent(), event, ""},
		{"an unknown type", sent(), strings.Replace(event, "call.completed", "call.started", 1), "call.started"},
		{"an extra member of the envelope", sent(), strings.Replace(event, `"sequence"`, `"x":1,"sequence"`, 1), "x"},
		{"an extra member of the call", sent(), strings.Replace(event, `"direction"`, `"x":1,"direction"`, 1), "x"},
		{"a sequence from 0", sent(), strings.Replace(event, `"sequence":3`, `"sequence":0`, 1), "sequence"},
		{"a status of another event", sent(), strings.Replace(event, `"status":"completed"`, `"status":"busy"`, 1), "busy"},
		{"no signature", sent("X-Service-Signature", ""), event, "X-Service-Signature"},
		{"a signature in capitals", sent("X-Service-Signature", "t=1,v1="+strings.Repeat("0A", 32)), event, "X-Service-Signature"},
		{"attempt 0", sent("X-Service-Delivery-Attempt", "0"), event, "X-Service-Delivery-Attempt"},
		{"another event's id", sent("X-Service-Event-Id", strings.Replace(anID, "0", "1", 1)), event, "event's id"},
		{"a test event", sent(), `{"id":"` + anID + `","type":"webhook.test","api_version":"2026-06-04",` +
			`"created_at":"2026-06-04T09:00:01.000Z","workspace_id":"` + anID +
			`","sequence":1,"data":{"subscription_id":"` + anID + `","message":"x","call_id":null}}`, ""},
	} {
		err := d.Delivery(row.header, []byte(row.body))
		if (err == nil) != (row.wrong == "") {
			t.Errorf("%s: Delivery error = %v, want success = %v", row.name, err, (row.wrong == ""))
		} else if err != nil && !strings.Contains(err.Error(), row.wrong) {
			t.Errorf("%s: err = %q, want it to contain %q", row.name, err.Error(), row.wrong)
		}
	}
}

type answering func(*http.Request) *http.Response

func (f answering) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

func TestWire_AcceptedRequestsMustBeDocumented(t *testing.T) {
	t.Parallel()
	d := load(t)
	order := func(more string) string { return `{"agent_id":"` + anID + `","to":"+14155550101"` + more + `}` }
	empty := `{"data":[],"has_more":false}`
	tests := []struct {
		name, method, path, body string
		status                   int
		answer                   string
		lenient, wantErr         bool
	}{
		{name: "documented", method: "POST", path: "/v1/calls", body: order(""), status: 202, answer: request},
		{name: "unknown field", method: "POST", path: "/v1/calls", body: order(`,"x":1`), status: 202, answer: request},
		{
			name: "accepted external_ref of the wrong type", method: "POST", path: "/v1/calls", body: order(`,"external_ref":5`),
			status: 202, answer: request, wantErr: true,
		},
		{
			name: "accepted contact_id that is no UUID", method: "POST", path: "/v1/calls", body: order(`,"contact_id":"x"`),
			status: 202, answer: request, wantErr: true,
		},
		{
			name: "accepted time without a zone", method: "POST", path: "/v1/calls",
			body: order(`,"scheduled_for":"2026-06-04T09:00:00"`), status: 202, answer: request, wantErr: true,
		},
		{name: "body of a replay", method: "POST", path: "/v1/calls", body: `{"to":5}`, status: 200, answer: request},
		{
			name: "rejected body", method: "POST", path: "/v1/calls", body: `{`, status: 422,
			answer: refusal("validation_error"),
		},
		{
			name: "accepted limit above the maximum", method: "GET", path: "/v1/call-requests?limit=101",
			status: 200, answer: empty, wantErr: true,
		},
		{
			name: "limit above the maximum with the header Lenient", method: "GET", path: "/v1/call-requests?limit=101",
			status: 200, answer: empty, lenient: true,
		},
		{name: "unknown parameter", method: "GET", path: "/v1/call-requests?x=1", status: 200, answer: empty},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			url := "http://127.0.0.1" + test.path
			asked, err := http.NewRequestWithContext(t.Context(), test.method, url, strings.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			asked.Header.Set("Content-Type", "application/json")
			if test.lenient {
				asked.Header.Set(contract.Lenient, test.name)
			}
			sent := ""
			response, err := d.Wire(answering(func(r *http.Request) *http.Response {
				sent = r.Header.Get(contract.Lenient)
				header := headers()
				if test.method == "POST" && test.status == http.StatusOK {
					header.Set("Idempotency-Replayed", "true")
				}
				return &http.Response{StatusCode: test.status, Header: header, Body: io.NopCloser(strings.NewReader(test.answer))}
			})).RoundTrip(asked)
			if gotErr := err != nil; gotErr != test.wantErr {
				t.Errorf("RoundTrip error = %v, want an error: %t", err, test.wantErr)
			}
			if sent != "" {
				t.Errorf("header %s = %q, want it removed", contract.Lenient, sent)
			}
			if err != nil {
				return
			}
			body, err := io.ReadAll(response.Body)
			if err != nil {
				t.Errorf("read the body: %v", err)
			}
			if string(body) != test.answer {
				t.Errorf("body = %q, want %q", body, test.answer)
			}
		})
	}
}

func TestUnseen_OmitsResponsesThatTheServiceHasReturned(t *testing.T) {
	t.Parallel()
	d := load(t)
	before := d.Unseen()
	for _, want := range []string{"createCall 202", "createCall 422 recipient_dnd", "default method_not_allowed", "webhook call.busy", "readReference 200"} {
		if !slices.Contains(before, want) {
			t.Errorf("%q is not among what is documented", want)
		}
	}
	address := &url.URL{Path: "/v1/calls"}
	if err := d.Answer("POST", address, 422, headers(), []byte(refusal("recipient_dnd"))); err != nil {
		t.Fatal(err)
	}
	// An invalid response is not recorded, so its code remains unseen.
	_ = d.Answer("POST", address, 402, headers(), []byte(refusal("recipient_dnd")))
	if err := d.Answer("PUT", address, 405, headers(), []byte(refusal("method_not_allowed"))); err != nil {
		t.Fatal(err)
	}
	after := d.Unseen()
	if got, want := len(after), len(before)-2; got != want {
		t.Errorf("unseen answers = %d, want %d", got, want)
	}
	for _, seen := range []string{"default method_not_allowed", "createCall 422 recipient_dnd"} {
		if slices.Contains(after, seen) {
			t.Errorf("unseen answers contain %q, which was seen", seen)
		}
	}
}

func TestCodes_EqualTheDocumentedErrorCodes(t *testing.T) {
	t.Parallel()
	var document struct {
		Components struct {
			Examples map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal(openapi.Description, &document); err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(maps.Keys(document.Components.Examples)), contract.Codes(); !slices.Equal(got, want) {
		t.Errorf("documented codes %v, want %v", got, want)
	}
}
