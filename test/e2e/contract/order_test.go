package contract

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/test/kit/sharedstack"
)

// operationRequest is a request for an operation. The test replaces {id} in path by the id of an
// object.
type operationRequest struct {
	operation, method, path string
	body                    any
}

func (a operationRequest) writes() bool { return a.method != http.MethodGet }

// needsWriteAccess reports whether a key with read access is refused.
func (a operationRequest) needsWriteAccess() bool {
	return (a.writes() && a.operation != "previewDecision") || a.operation == "listAuditEntries"
}
func (a operationRequest) webhooks() bool {
	return strings.HasPrefix(a.path, "/v1/webhook-") || a.path == events
}
func (a operationRequest) name() string { return a.method + " " + a.path }

// operationRequests returns a request for every operation that needs a key.
func operationRequests() []operationRequest {
	const calls, requests, contacts, optOuts = "/v1/calls", "/v1/call-requests", "/v1/contacts", "/v1/opt-outs"
	return []operationRequest{
		{"listCalls", "GET", calls, nil},
		{"createCall", "POST", calls, set{"agent_id": uuid.NewString(), "to": "+14155550101"}},
		{"readCall", "GET", calls + "/{id}", nil},
		{"readTranscript", "GET", calls + "/{id}/transcript", nil},
		{"readRecording", "GET", calls + "/{id}/recording", nil},
		{"listCallRequests", "GET", requests, nil},
		{"readCallRequest", "GET", requests + "/{id}", nil},
		{"readTimeline", "GET", requests + "/{id}/timeline", nil},
		{"cancelCallRequest", "POST", requests + "/{id}/cancel", nil},
		{"listContacts", "GET", contacts, nil},
		{"createContact", "POST", contacts, set{"phone_e164": "+14155550101"}},
		{"readContact", "GET", contacts + "/{id}", nil},
		{"updateContact", "PATCH", contacts + "/{id}", set{"name": "Ada"}},
		{"createOptOut", "POST", optOuts, set{"phone_e164": "+14155550101"}},
		{"readOptOut", "GET", optOuts + "/+14155550101", nil},
		{"deleteOptOut", "DELETE", optOuts + "/+14155550101", nil},
		{"listAuditEntries", "GET", auditLog, nil},
		{"listDecisions", "GET", "/v1/decisions", nil},
		{"previewDecision", "POST", "/v1/decisions/preview", set{"to": "+14155550101"}},
		{"hangUpCall", "POST", calls + "/{id}/hangup", nil},
		{"readDialing", "GET", dialing, nil},
		{"setDialing", "PUT", dialing, set{"state": "active"}},
		{"readWallet", "GET", "/v1/wallet", nil},
		{"readUsage", "GET", "/v1/usage?month=2026-06", nil},
		{"readCallStatistics", "GET", "/v1/call-statistics", nil},
		{"streamEvents", "GET", events, nil},
		{"listWebhookSubscriptions", "GET", subscriptions, nil},
		{"createWebhookSubscription", "POST", subscriptions, subscription("https://127.0.0.1:1/x")},
		{"updateWebhookSubscription", "PATCH", subscriptions + "/{id}", set{"status": "paused"}},
		{"deleteWebhookSubscription", "DELETE", subscriptions + "/{id}", nil},
		{"rotateWebhookSecret", "POST", subscriptions + "/{id}/rotate-secret", nil},
		{"testWebhookSubscription", "POST", subscriptions + "/{id}/test", nil},
		{"readWebhookSubscription", "GET", subscriptions + "/{id}", nil},
		{"listWebhookDeliveries", "GET", subscriptions + "/{id}/deliveries", nil},
		{"replayWebhookDeliveries", "POST", subscriptions + "/{id}/replay", set{"since": "2026-06-04T09:00:00Z"}},
		{"readWebhookDelivery", "GET", deliveries + "/{id}", nil},
		{"resendWebhookDelivery", "POST", deliveries + "/{id}/resend", nil},
	}
}

func (a operationRequest) do(t *testing.T, c *client, id string, header ...string) answer {
	t.Helper()
	return c.send(t, a.method, strings.Replace(a.path, "{id}", id, 1), a.body, header...)
}

func TestCheckOrder_TestedRequestsCoverEveryOperation(t *testing.T) {
	// These operations need no key. service_test.go tests them.
	asked := []string{"readInterfaceDescription", "readReadiness", "readReference"}
	for _, a := range operationRequests() {
		asked = append(asked, a.operation)
	}
	slices.Sort(asked)
	if documented := stack(t).document.Operations(); !slices.Equal(asked, documented) {
		t.Errorf("asked %v, documented %v", asked, documented)
	}
}

// TestOrder_ChecksOfEveryRoute sends requests with several errors. The response
// must contain the error of the check that is first in the documented order.
func TestOrder_ChecksOfEveryRoute(t *testing.T) {
	starter := workspace(t, set{"plan": "starter"})
	deaf := workspace(t, set{"features": set{"webhooks": false}})
	w := workspace(t)
	unknown := uuid.NewString()
	// The test has its own client address, because other tests use up the limit of this machine's
	// address.
	from := []string{"X-Forwarded-For", "198.51.100.7"}
	malformed := strings.Repeat("x", 40)
	all := append(operationRequests(),
		operationRequest{"", "GET", "/v1/nothing", nil}, operationRequest{"", "POST", "/v1/nothing", "{"},
		operationRequest{"", "PUT", "/v1/calls", nil}, operationRequest{"", "GET", "/", nil},
		operationRequest{"", "DELETE", subscriptions, nil}, operationRequest{"", "GET", subscriptions + "/{id}/nothing", nil})
	for _, a := range all {
		t.Run(a.name(), func(t *testing.T) {
			check := func(what string, got answer, status int, code string) {
				t.Helper()
				if got.status != status {
					t.Errorf("%s: got.status = %v, want %v; a.name() = %s; got.body = %s",
						what, got.status, status, a.name(), got.body)
				} else if got.code() != code {
					t.Errorf("%s: got.code() = %q, want %q; a.name() = %s; got.body = %s",
						what, got.code(), code, a.name(), got.body)
				}
			}
			for name, key := range map[string]string{"no key": "", "a malformed key": malformed, "an unknown key": "rf_live_00000000_" + strings.Repeat("a", 52)} {
				check(name, a.do(t, customer(t, key), unknown, from...), 401, "invalid_api_key")
			}
			check("another scheme", a.do(t, customer(t, ""), unknown, append(from, "Authorization", "Basic "+w.write.key)...), 401, "invalid_api_key")

			limited, id := starter.key(t, "read")
			check("a plan without API access, by a key that may only read", a.do(t, limited, unknown), 403, "api_not_enabled")
			starter.operator.want(t, 200, "DELETE", starter.admin+"/api-keys/"+id, nil)

			if a.webhooks() {
				check("a plan without webhooks, by a key that may only read", a.do(t, deaf.read, unknown), 403, "webhooks_not_enabled")
			}
			if a.needsWriteAccess() {
				check("a read key and an unknown id", a.do(t, w.read, unknown), 403, "missing_scope")
				check("a read key and an invalid body", w.read.send(t, a.method, strings.Replace(a.path, "{id}", unknown, 1), "{"),
					403, "missing_scope")
			}
			if a.operation == "" {
				status, code := 404, "not_found"
				if a.path == "/v1/calls" || a.path == subscriptions {
					status, code = 405, "method_not_allowed"
				}
				check("no such route", a.do(t, w.write, unknown), status, code)
				return
			}
			if strings.Contains(a.path, "{id}") {
				for _, id := range []string{unknown, "x", "00000000-0000-0000-0000-000000000000", strings.ToUpper(unknown) + "0", "%00", "%FF", "+", "1%20or%201"} {
					check("an unknown or invalid id", a.do(t, w.write, id), 404, "not_found")
				}
			}
			if a.writes() {
				large := w.write.send(t, a.method, strings.Replace(a.path, "{id}", unknown, 1), strings.Repeat(" ", 256<<10+1))
				check("a body over 256 KiB", large, 413, "request_too_large")
			}
		})
	}
}

// The gateway must check the key before the rate limit. It must check the plan, the access and the
// route after the rate limit.
func TestCheckOrder_RateLimitIsCheckedAfterTheKey(t *testing.T) {
	one := set{"rate_limit_per_minute": 1}
	w, starter := workspace(t, one), workspace(t, one, set{"plan": "starter"})
	w.read.want(t, 200, "GET", "/v1/wallet", nil)
	w.write.want(t, 200, "GET", "/v1/wallet", nil)
	// a refused request counts toward the limit
	starter.read.refused(t, 403, "api_not_enabled", "GET", "/v1/wallet", nil)
	for _, a := range append(operationRequests(), operationRequest{"", "GET", "/v1/nothing", nil},
		operationRequest{"", "PUT", "/v1/calls", nil}) {
		for _, c := range []*client{w.write, w.read, starter.read} {
			got := a.do(t, c, uuid.NewString())
			sharedstack.Equal(t, "got.status", got.status, 429)
			sharedstack.Equal(t, "got.code()", got.code(), "rate_limited")
			if got.header.Get("Retry-After") == "" {
				t.Errorf("got.header.Get('Retry-After') = %v, want a value", got.header.Get("Retry-After"))
			}
		}
	}
}

func TestCheckOrder_UndocumentedMethodIsRefusedWith405(t *testing.T) {
	w := workspace(t)
	known := map[string][]string{}
	for _, a := range operationRequests() {
		known[a.path] = append(known[a.path], a.method)
	}
	for path, methods := range known {
		for _, method := range []string{"PUT", "POST", "PATCH", "DELETE", "GET", "OPTIONS", "TRACE", "BREW"} {
			if slices.Contains(methods, method) {
				continue
			}
			got := w.write.refused(t, 405, "method_not_allowed", method, strings.Replace(path, "{id}", uuid.NewString(), 1), nil)
			for _, one := range methods {
				if !strings.Contains(got.header.Get("Allow"), one) {
					t.Errorf("%s %s: Allow = %q, want %v", method, path, got.header.Get("Allow"), methods)
				}
			}
		}
		if slices.Contains(methods, "GET") && !strings.Contains(path, "{") && !strings.Contains(path, "+") {
			if got := w.write.want(t, 200, "HEAD", path, nil); got.body != "" {
				t.Errorf("HEAD %s has the body %q", path, got.body)
			}
		}
	}
	for _, path := range []string{"/", "/v1", "/v1/", "/v2/calls", "/v1/calls/", "/v1//calls", "/V1/calls", "/v1/Calls", "/v1/calls/a/b", "/v1/webhooks", "/v1/%63alls", "/v1/calls/../calls", "/admin/v1/workspaces"} {
		w.read.refused(t, 404, "not_found", "GET", path, nil)
	}
}

// placeError is one error of POST /v1/calls. If the called number causes the error, `to` is this
// number.
type placeError struct {
	name, code string
	status     int
	to         string
	spoil      func(order set)
	// closedWindow is true if a closed calling window causes the error.
	closedWindow bool
}

// isCompatible reports whether one request can have both errors. A request has only one number and
// one contact_id.
func (p placeError) isCompatible(other placeError) bool {
	contacts := strings.Contains(p.name, "a contact ") && strings.Contains(other.name, "a contact ")
	if p.name == other.name {
		return true
	}
	return !contacts && (p.to == "" || other.to == "")
}

// TestOrder_ChecksOfPlacingACall sends every possible pair of errors. The response
// must have the error of the earlier check.
func TestOrder_ChecksOfPlacingACall(t *testing.T) {
	closed := closedWindow(time.Now())
	open, shut := workspace(t), workspace(t, set{"calling_policy": set{"window": closed.window, "timezone": "UTC"}})
	optedOut, withdrawn, clean := number(1), number(1), number(1)
	other := map[*tenant]string{}
	for _, w := range []*tenant{open, shut} {
		w.write.want(t, 200, "POST", "/v1/opt-outs", set{"phone_e164": optedOut})
		for _, to := range []string{optedOut, withdrawn} {
			w.consent(t, to, "withdrawn")
		}
		other[w] = w.write.want(t, 201, "POST", "/v1/contacts", set{"phone_e164": number(1)}).text("id")
	}
	faults := []placeError{
		{name: "an invalid idempotency key", code: "validation_error", spoil: func(o set) { o["idempotency_key"] = "" }},
		{name: "an agent_id that is no UUID", code: "validation_error", spoil: func(o set) { o["agent_id"] = "Ada" }},
		{name: "a field of the wrong type", code: "validation_error",
			spoil: func(o set) { o["schedule_if_outside_hours"] = "yes" }},
		{name: "an invalid phone number", code: "invalid_phone", to: "112"},
		{name: "a number that is never dialed", code: "validation_error", to: "+19005550101"},
		{name: "an unknown agent", code: "invalid_agent", spoil: func(o set) { o["agent_id"] = uuid.NewString() }},
		{name: "an unknown contact", code: "invalid_contact", spoil: func(o set) { o["contact_id"] = uuid.NewString() }},
		{name: "a contact with another number", code: "contact_phone_mismatch", spoil: func(o set) { o["contact_id"] = "other" }},
		{name: "an opted-out number with withdrawn consent", code: "recipient_dnd", to: optedOut},
		{name: "consent withdrawn", code: "consent_withdrawn", to: withdrawn},
		{name: "a closed window", code: "outside_calling_hours", closedWindow: true},
		{name: "no credit", code: "insufficient_credits", status: 402},
	}
	for i := range faults {
		faults[i].status = cmp.Or(faults[i].status, 422)
	}
	t.Run("pairs", func(t *testing.T) { // t.Run returns when all parallel subtests have ended
		for i, first := range faults {
			for _, second := range faults[i:] {
				if !first.isCompatible(second) {
					continue
				}
				t.Run(first.name+", then "+second.name, func(t *testing.T) {
					w := open
					if first.closedWindow || second.closedWindow {
						w = shut
					}
					order := w.order(cmp.Or(first.to, second.to, clean))
					for _, fault := range []placeError{second, first} {
						if fault.spoil != nil {
							fault.spoil(order)
						}
					}
					if order["contact_id"] == "other" {
						order["contact_id"] = other[w]
					}
					w.write.refused(t, first.status, first.code, "POST", "/v1/calls", order)
				})
			}
		}
	})
	for _, text := range []string{"{", "", "[]", `"x"`, "null", `{"to":}`, `{"agent_id":"a"} {}`, "{\"to\":\"\xff\"}", `{"to":"+1415` + "\x00" + `"}`} {
		open.write.refused(t, 422, "validation_error", "POST", "/v1/calls", text, "Idempotency-Key", "used later")
	}
	for _, w := range []*tenant{open, shut} {
		if got := w.read.want(t, 200, "GET", "/v1/call-requests", nil).ids(); len(got) != 0 {
			t.Errorf("refusals left %v behind", got)
		}
	}
}

// A replay is a request with a repeated idempotency key. The gateway must detect a replay after it
// has checked the JSON and the API key, and before all other checks.
func TestCheckOrder_ReplayIsDetectedBeforeTheCreditIsChecked(t *testing.T) {
	w := workspace(t)
	w.topUp(t, holdOfOneCall)
	to, ahead := number(1), time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	first := w.write.want(t, 202, "POST", "/v1/calls", w.order(to, "idempotency_key", "k", "scheduled_for", ahead))
	w.write.refused(t, 422, "validation_error", "POST", "/v1/calls", "{", "Idempotency-Key", "k")
	w.write.refused(t, 422, "validation_error", "POST", "/v1/calls", `{"idempotency_key":7}`, "Idempotency-Key", "k")
	w.write.refused(t, 402, "insufficient_credits", "POST", "/v1/calls", w.order(number(1), "idempotency_key", "k2"))
	w.write.want(t, 200, "POST", "/v1/opt-outs", set{"phone_e164": to})
	w.operator.want(t, 200, "DELETE", w.admin+"/agents/"+w.agent, nil)
	if got := w.write.want(t, 200, "POST", "/v1/calls", w.order(to, "idempotency_key", "k")); got.text("id") != first.text("id") {
		t.Errorf("replay = %s, want %s", got.body, first.body)
	}
	w.read.refused(t, 403, "missing_scope", "POST", "/v1/calls", w.order(to, "idempotency_key", "k"))
}
