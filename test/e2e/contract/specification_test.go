package contract

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/test/kit"
)

// TestSpecification_StrictClientSeesNoViolation uses every operation of the specification, produces
// every documented outcome, and checks each response and webhook with specClient.
func TestSpecification_StrictClientSeesNoViolation(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "100")
	c := &specClient{
		base: stack(t).Demo.BaseURL, key: w.write.key, http: &http.Client{Timeout: 30 * time.Second}, seen: map[string]bool{},
	}
	c.want(t, "200", "GET /v1/wallet", nil, nil, nil)
	secrets := c.useSubscriptions(t, w)
	c.useContacts(t, w)
	c.placeCalls(t, w)
	c.placeRefusedCalls(t, w)
	c.useOtherKeys(t, w)
	c.checkDeliveries(t, w, secrets)
	for _, o := range specOperations {
		outcomes := slices.Clone(o.errors)
		for status := range o.success {
			outcomes = append(outcomes, strconv.Itoa(status))
		}
		for _, outcome := range outcomes {
			name := o.method + " " + o.path + " " + outcome
			listed := !slices.Contains(specGeneral, outcome) || o.path == "/v1/calls" && o.method == "POST"
			if reason := specNotTried[name]; !c.seen[name] && reason == "" && listed {
				t.Errorf("%s was not tried", name)
			}
		}
	}
	for _, code := range specEverywhere {
		if !slices.ContainsFunc(specOperations, func(o specOperation) bool { return c.seen[o.method+" "+o.path+" "+code] }) {
			t.Errorf("the error %s was not tried", code)
		}
	}
}

// specGeneral are codes that part 7 permits for operations whose row in part 4 does not list them.
var specGeneral = []string{"validation_error", "not_found", "webhooks_not_enabled", "invalid_phone"}

const specHooks = "/v1/webhook-subscriptions"

// useSubscriptions leaves one active subscription to all events of calls. It returns the secrets
// with which the events of the subscription can be signed.
func (c *specClient) useSubscriptions(t *testing.T, w *tenant) (secrets []string) {
	t.Helper()
	body := func(address string, events ...string) set {
		return set{"name": "CRM", "url": address, "events": append([]string{}, events...), "description": "calls"}
	}
	address := stack(t).Hooks.URL + "/" + w.id
	events := []string{"call.ringing", "call.answered", "call.completed", "call.failed", "call.no_answer", "call.busy"}
	made := c.want(t, "201", "POST "+specHooks, nil, nil, body(address, events...))
	id, secret := []string{made["id"].(string)}, made["signing_secret"].(string)
	listed := c.want(t, "200", "GET "+specHooks, nil, nil, nil)["data"].([]any)[0].(map[string]any)
	masked, _ := listed["signing_secret"].(string)
	if !strings.HasSuffix(masked, secret[len(secret)-4:]) || listed["status"] != "active" {
		t.Errorf("listed subscription = %v, want the last characters of the secret and the status active", listed)
	}
	c.want(t, "invalid_url", "POST "+specHooks, nil, nil, body("http://127.0.0.1/x", events...))
	c.want(t, "no_events", "POST "+specHooks, nil, nil, body(address))
	c.want(t, "invalid_event_type", "POST "+specHooks, nil, nil, body(address, "call.started"))

	one := specHooks + "/{id}"
	c.want(t, "202", "POST "+one+"/test", id, nil, nil)
	rotated := c.want(t, "200", "POST "+one+"/rotate-secret", id, nil, nil)["signing_secret"].(string)
	if rotated == secret {
		t.Errorf("the rotation returned the same secret")
	}
	if paused := c.want(t, "200", "PATCH "+one, id, nil, set{"status": "paused"}); paused["status"] != "paused" {
		t.Errorf("status = %v, want paused", paused["status"])
	}
	c.want(t, "subscription_not_active", "POST "+one+"/test", id, nil, nil)
	c.want(t, "invalid_action", "PATCH "+one, id, nil, set{"status": "failed"})
	c.want(t, "invalid_status", "PATCH "+one, id, nil, set{"status": "x"})
	c.want(t, "invalid_url", "PATCH "+one, id, nil, set{"url": "http://127.0.0.1/x"})
	c.want(t, "no_events", "PATCH "+one, id, nil, set{"events": []string{}})
	c.want(t, "invalid_event_type", "PATCH "+one, id, nil, set{"events": []string{"x"}})

	var others []string
	for range 5 { // the paused subscription does not count
		others = append(others, c.want(t, "201", "POST "+specHooks, nil, nil, body(address, "call.busy"))["id"].(string))
	}
	c.want(t, "subscription_limit_reached", "POST "+specHooks, nil, nil, body(address, "call.busy"))
	c.want(t, "subscription_limit_reached", "PATCH "+one, id, nil, set{"status": "active"})
	for _, other := range others {
		gone := c.want(t, "200", "DELETE "+one, []string{other}, nil, nil)
		c.wantMember(t, gone, "deleted", true)
		c.wantMember(t, gone, "id", other)
	}
	if active := c.want(t, "200", "PATCH "+one, id, nil, set{"status": "active"}); active["status"] != "active" {
		t.Errorf("status = %v, want active", active["status"])
	}
	unknown := []string{uuid.NewString()}
	c.want(t, "not_found", "DELETE "+one, unknown, nil, nil)
	c.want(t, "not_found", "PATCH "+one, unknown, nil, set{"status": "active"})
	c.want(t, "not_found", "POST "+one+"/test", unknown, nil, nil)
	c.want(t, "not_found", "POST "+one+"/rotate-secret", unknown, nil, nil)
	return []string{secret, rotated}
}

func (c *specClient) useContacts(t *testing.T, w *tenant) {
	t.Helper()
	phone, other := number(1), number(1)
	body := set{"phone_e164": phone, "name": "Grace", "metadata": set{"a": 1}}
	made := c.want(t, "201", "POST /v1/contacts", nil, nil, body)
	again := c.want(t, "contact_exists", "POST /v1/contacts", nil, nil, set{"phone_e164": phone})
	if !strings.Contains(fmt.Sprint(again), made["id"].(string)) {
		t.Errorf("existing_id = %v, want %v", again, made["id"])
	}
	c.want(t, "validation_error", "POST /v1/contacts", nil, nil, set{"phone_e164": "0151"})
	id := []string{made["id"].(string)}
	c.want(t, "200", "GET /v1/contacts/{id}", id, nil, nil)
	c.want(t, "not_found", "GET /v1/contacts/{id}", []string{uuid.NewString()}, nil, nil)
	changed := c.want(t, "200", "PATCH /v1/contacts/{id}", id, nil, set{"name": "Grace Hopper", "metadata": set{"b": "2"}})
	if changed["name"] != "Grace Hopper" {
		t.Errorf("name = %v, want Grace Hopper", changed["name"])
	}
	c.want(t, "not_found", "PATCH /v1/contacts/{id}", []string{uuid.NewString()}, nil, set{"name": "x"})

	opted := c.want(t, "200", "POST /v1/opt-outs", nil, nil, set{"phone_e164": other, "reason": "asked"})
	c.wantMember(t, opted, "dnd_status", "dnd")
	c.want(t, "invalid_phone", "POST /v1/opt-outs", nil, nil, set{"phone_e164": "0151"})
	c.wantMember(t, c.want(t, "200", "GET /v1/opt-outs/{phone}", []string{other}, nil, nil), "dnd_status", "dnd")
	c.want(t, "not_found", "GET /v1/opt-outs/{phone}", []string{number(1)}, nil, nil)
	c.want(t, "recipient_dnd", "POST /v1/calls", nil, nil, w.order(other))
	c.wantMember(t, c.want(t, "200", "DELETE /v1/opt-outs/{phone}", []string{other}, nil, nil), "dnd_status", "clean")
	for name, value := range map[string]string{
		"phone": phone, "q": "Hopper", "dnd_status": "unknown", "consent_status": "unknown",
	} {
		found := c.want(t, "200", "GET /v1/contacts", nil, url.Values{name: {value}}, nil)["data"].([]any)
		if !slices.ContainsFunc(found, func(item any) bool { return item.(map[string]any)["id"] == id[0] }) {
			t.Errorf("contacts with %s=%s = %v, want Grace", name, value, found)
		}
	}
	c.readPages(t, "GET /v1/contacts", 2)
}

func (c *specClient) wantMember(t *testing.T, answer map[string]any, name string, want any) {
	t.Helper()
	if answer[name] != want {
		t.Errorf("%s = %v, want %v", name, answer[name], want)
	}
}

// readPages reads a list item by item. The items are newest first and occur once.
func (c *specClient) readPages(t *testing.T, operation string, atLeast int) {
	t.Helper()
	query, seen, before := url.Values{"limit": {"1"}}, map[string]bool{}, time.Now().Add(time.Hour)
	for more := true; more; {
		page := c.want(t, "200", operation, nil, query, nil)
		items, _ := page["data"].([]any)
		if more = page["has_more"] == true; len(items) != 1 {
			t.Fatalf("%s?%s has %d items, want 1", operation, query.Encode(), len(items))
		}
		item, _ := items[0].(map[string]any)
		id, _ := item["id"].(string)
		created, err := time.Parse(time.RFC3339Nano, fmt.Sprint(item["created_at"]))
		if err != nil || created.After(before) {
			t.Errorf("%s: created_at = %v, want a time that is not after %s", operation, item["created_at"], before)
		}
		if seen[id] {
			t.Fatalf("%s has the item %s twice", operation, id)
		}
		seen[id], before = true, created
		query.Set("starting_after", id)
	}
	if len(seen) < atLeast {
		t.Errorf("%s has %d items, want at least %d", operation, len(seen), atLeast)
	}
}

// placeCalls places a call of each ending, and cancels a call that is scheduled.
func (c *specClient) placeCalls(t *testing.T, w *tenant) {
	t.Helper()
	const place, request = "POST /v1/calls", "GET /v1/call-requests/{id}"
	statuses := map[string]bool{}
	for _, digits := range []int{1, 90, 91, 92} {
		body := w.order(number(digits), "external_ref", "order 7", "variables", set{"name": "Grace"}, "idempotency_key",
			fmt.Sprint("key ", digits))
		queued := c.want(t, "202", place, nil, nil, body, "Idempotency-Key", "another key")
		c.wantMember(t, queued, "status", "queued")
		c.wantMember(t, c.want(t, "200", place, nil, nil, body), "id", queued["id"])
		id := []string{queued["id"].(string)}
		var ended map[string]any
		until(t, "the request ends", func() bool {
			ended = c.want(t, "200", request, id, nil, nil)
			statuses[ended["status"].(string)] = true
			return ended["status"] != "queued" && ended["status"] != "dialing"
		})
		if digits != 1 {
			continue
		}
		c.wantMember(t, ended, "status", "completed")
		for _, name := range []string{"call_id", "dialed_at", "completed_at"} {
			if ended[name] == nil {
				t.Errorf("the request is completed, but %s is null", name)
			}
		}
		c.readCall(t, w, ended)
		c.want(t, "not_cancelable", "POST /v1/call-requests/{id}/cancel", id, nil, nil)
	}
	for _, status := range []string{"completed", "failed"} {
		if !statuses[status] {
			t.Errorf("no request was %s", status)
		}
	}
	later := w.order(number(1), "scheduled_for", time.Now().Add(48*time.Hour).UTC().Format(time.RFC3339))
	scheduled := []string{c.want(t, "202", place, nil, nil, later)["id"].(string)}
	canceled := c.want(t, "200", "POST /v1/call-requests/{id}/cancel", scheduled, nil, nil)
	c.wantMember(t, canceled, "status", "canceled")
	c.want(t, "not_cancelable", "POST /v1/call-requests/{id}/cancel", scheduled, nil, nil)
	c.want(t, "not_found", "POST /v1/call-requests/{id}/cancel", []string{uuid.NewString()}, nil, nil)
	c.want(t, "not_found", request, []string{uuid.NewString()}, nil, nil)
	for _, query := range []url.Values{{"status": {"canceled"}}, {"external_ref": {"order 7"}}} {
		if found := c.want(t, "200", "GET /v1/call-requests", nil, query, nil)["data"].([]any); len(found) == 0 {
			t.Errorf("call requests with %s = none", query.Encode())
		}
	}
	c.readPages(t, "GET /v1/call-requests", 5)
	c.readPages(t, "GET /v1/calls", 4)
}

// readCall reads the call of a completed request.
func (c *specClient) readCall(t *testing.T, w *tenant, request map[string]any) {
	t.Helper()
	id := []string{request["call_id"].(string)}
	var call map[string]any
	until(t, "the call has an outcome", func() bool {
		call = c.want(t, "200", "GET /v1/calls/{id}", id, nil, nil)
		return call["outcome"] != nil && call["credits_charged"] != nil
	})
	for name, want := range map[string]any{
		"call_id": id[0], "to": request["to"], "external_ref": "order 7", "direction": "outbound",
	} {
		c.wantMember(t, call, name, want)
	}
	c.want(t, "not_found", "GET /v1/calls/{id}", []string{uuid.NewString()}, nil, nil)
	c.want(t, "transcript_not_available", "GET /v1/calls/{id}/transcript", id, nil, nil)
	c.want(t, "recording_not_available", "GET /v1/calls/{id}/recording", id, nil, nil)
	for name, value := range map[string]string{
		"direction": "outbound", "agent_id": w.agent, "contact_id": call["contact_id"].(string), "external_ref": "order 7",
		"status": call["status"].(string), "created_after": "2026-01-01T00:00:00Z",
		"created_before": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
	} {
		found := c.want(t, "200", "GET /v1/calls", nil, url.Values{name: {value}}, nil)["data"].([]any)
		if !slices.ContainsFunc(found, func(item any) bool { return item.(map[string]any)["id"] == id[0] }) {
			t.Errorf("calls with %s=%s = %v, want the call %s", name, value, found, id[0])
		}
	}
}

func (c *specClient) placeRefusedCalls(t *testing.T, w *tenant) {
	t.Helper()
	contact := c.want(t, "201", "POST /v1/contacts", nil, nil, set{"phone_e164": number(1)})["id"]
	withdrawn := number(1)
	w.consent(t, withdrawn, "withdrawn")
	for code, body := range map[string]set{
		"invalid_agent":          {"agent_id": uuid.NewString(), "to": number(1)},
		"invalid_contact":        w.order(number(1), "contact_id", uuid.NewString()),
		"contact_phone_mismatch": w.order(number(1), "contact_id", contact),
		"invalid_phone":          w.order("0151"),
		"validation_error":       {"to": number(1)},
		"consent_withdrawn":      w.order(withdrawn),
	} {
		c.want(t, code, "POST /v1/calls", nil, nil, body)
	}
	closed := closedWindow(time.Now())
	w.operator.want(t, 200, "PATCH", w.admin, set{"calling_policy": set{"window": closed.window, "timezone": "UTC"}})
	c.want(t, "outside_calling_hours", "POST /v1/calls", nil, nil, w.order(number(1)))
	next := c.want(t, "202", "POST /v1/calls", nil, nil, w.order(number(1), "schedule_if_outside_hours", true))
	if at := instant(t, next["scheduled_for"].(string)); at.Before(closed.next) {
		t.Errorf("scheduled_for = %s, want the next window, %s", at, closed.next)
	}
}

// useOtherKeys sends requests with keys that part 5 refuses, and more requests than part 8 permits.
func (c *specClient) useOtherKeys(t *testing.T, w *tenant) {
	t.Helper()
	poor, plain := workspace(t, set{"rate_limit_per_minute": nil, "plan": "growth"}), workspace(t, set{"plan": "starter"})
	hookless := workspace(t, set{"features": set{"webhooks": false}})
	for _, key := range []string{"", "x", "rf_live_" + strings.Repeat("a", 40)} {
		c.withKey(key).want(t, "invalid_api_key", "GET /v1/wallet", nil, nil, nil, "X-Forwarded-For", addressOf(t))
	}
	reader, unknown := c.withKey(w.read.key), []string{uuid.NewString()}
	reader.want(t, "200", "GET /v1/calls", nil, nil, nil)
	for _, row := range []struct {
		operation string
		values    []string
		body      any
	}{
		{"POST /v1/calls", nil, w.order(number(1))}, {"POST /v1/call-requests/{id}/cancel", unknown, nil},
		{"POST " + specHooks, nil, set{}}, {"PATCH " + specHooks + "/{id}", unknown, set{}},
		{"DELETE " + specHooks + "/{id}", unknown, nil}, {"POST " + specHooks + "/{id}/test", unknown, nil},
		{"POST " + specHooks + "/{id}/rotate-secret", unknown, nil},
	} {
		reader.want(t, "missing_scope", row.operation, row.values, nil, row.body)
	}
	c.withKey(plain.write.key).want(t, "api_not_enabled", "GET /v1/wallet", nil, nil, nil)
	c.withKey(plain.write.key).want(t, "api_not_enabled", "POST /v1/calls", nil, nil, plain.order(number(1)))
	c.withKey(hookless.write.key).want(t, "webhooks_not_enabled", "GET "+specHooks, nil, nil, nil)
	c.withKey(hookless.write.key).want(t, "webhooks_not_enabled", "POST "+specHooks, nil, nil, set{"name": "x"})
	impatient := c.withKey(poor.write.key)
	impatient.want(t, "insufficient_credits", "POST /v1/calls", nil, nil, poor.order(number(1)))
	accepted := 0
	for range 200 {
		if impatient.ask(t, "GET /v1/wallet", nil, nil, nil)["(outcome)"] == "rate_limited" {
			break
		}
		accepted++
	}
	if !c.seen["GET /v1/wallet rate_limited"] {
		t.Errorf("%d requests were accepted, want about 120 in a minute", accepted)
	}
}

// checkDeliveries waits for the webhooks of the calls and checks them.
func (c *specClient) checkDeliveries(t *testing.T, w *tenant, secrets []string) {
	t.Helper()
	want := []string{
		"call.ringing", "call.answered", "call.completed", "call.failed", "call.no_answer", "call.busy", "webhook.test",
	}
	kinds := map[string]bool{}
	until(t, "every event type arrives", func() bool {
		for _, d := range stack(t).Hooks.Deliveries(w.id) {
			kinds[d.Type] = true
		}
		return !slices.ContainsFunc(want, func(kind string) bool { return !kinds[kind] })
	})
	for _, d := range stack(t).Hooks.Deliveries(w.id) {
		kind, err := specDelivery(d, secrets...)
		if err != nil {
			t.Errorf("webhook %s violates the specification: %v", d.Body, err)
		}
		if !slices.Contains(want, kind) {
			t.Errorf("the type %s was not subscribed", kind)
		}
		if kind == "call.completed" && !strings.Contains(string(d.Body), `"external_ref":"order 7"`) {
			t.Errorf("webhook %s does not have the external_ref", d.Body)
		}
	}
}

// The client must report each kind of violation. Otherwise the test above proves nothing.
func TestSpecificationClient_ReportsViolations(t *testing.T) {
	t.Parallel()
	const refusal = `{"error":{"code":"not_found","message":"There is no such call."}}`
	const wallet = `{"balance":1.5,"currency":"USD","last_transaction_at":null,"added":{"in":"a later version"}}`
	for _, row := range []struct {
		name, operation, body, want string
		status                      int
		header                      http.Header
	}{
		{name: "a wallet with an added field", operation: "GET /v1/wallet", status: 200, body: wallet},
		{name: "a refusal", operation: "GET /v1/calls/{id}", status: 404, body: refusal},
		{name: "a missing field", operation: "GET /v1/wallet", status: 200, body: `{"balance":1,"currency":"USD"}`,
			want: "last_transaction_at is missing"},
		{name: "a number as text", operation: "GET /v1/wallet", status: 200,
			body: strings.Replace(wallet, "1.5", `"1.5"`, 1), want: "is no number"},
		{name: "null without permission", operation: "GET /v1/wallet", status: 200,
			body: strings.Replace(wallet, `"USD"`, "null", 1), want: "is no currency code"},
		{name: "another status", operation: "GET /v1/wallet", status: 203, body: wallet, want: "203 is not documented"},
		{name: "an error without a code", operation: "GET /v1/wallet", status: 404, body: `{"error":{"message":"x"}}`,
			want: "code is missing"},
		{name: "a code of another status", operation: "GET /v1/calls/{id}", status: 409, body: refusal,
			want: "409 does not have the code not_found"},
		{name: "a code of another operation", operation: "GET /v1/wallet", status: 404, body: refusal,
			want: "operation does not have the code"},
		{name: "an unknown state", operation: "GET /v1/opt-outs/{phone}", status: 200,
			body: `{"phone_e164":"+14155550100","dnd_status":"blocked","consent_status":"unknown"}`, want: "is none of"},
		{name: "no Retry-After", operation: "GET /v1/wallet", status: 429,
			body: `{"error":{"code":"rate_limited","message":"Wait."}}`, want: "Retry-After"},
		{name: "HTML", operation: "GET /v1/wallet", status: 200, body: "<p>", want: "is no JSON"},
		{name: "no existing_id", operation: "POST /v1/contacts", status: 409,
			body: `{"error":{"code":"contact_exists","message":"It exists."}}`, want: "existing_id"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			at := slices.IndexFunc(specOperations, func(o specOperation) bool { return o.method+" "+o.path == row.operation })
			response := &http.Response{
				StatusCode: row.status, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(row.body)),
			}
			_, err := specOperations[at].check(response, []byte(row.body))
			wantFault(t, err, row.want)
		})
	}
}

func wantFault(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("error = %v, want none", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("error = %v, want %q", err, want)
	}
}

func TestSpecificationClient_ChecksWebhooksAndIgnoresUnknownTypes(t *testing.T) {
	t.Parallel()
	const secret, body = "whsec_a-secret", `{"type":"call.transferred","data":{}}`
	sign := func(at time.Time, body string) string {
		stamp := strconv.FormatInt(at.Unix(), 10)
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(stamp + "." + body))
		return "t=" + stamp + ",v1=" + hex.EncodeToString(mac.Sum(nil))
	}
	now := time.Now()
	const completed = `{"type":"call.completed","data":{"call_id":"x"}}`
	for _, row := range []struct{ name, signature, body, want string }{
		{name: "an unknown type", signature: sign(now, body), body: body},
		{name: "a changed body", signature: sign(now, body), body: completed, want: "the signature is wrong"},
		{name: "an old signature", signature: sign(now.Add(-301*time.Second), body), body: body,
			want: "the time of the signature"},
		{name: "a signature in upper case", signature: strings.ToUpper(sign(now, body)), body: body,
			want: "X-Service-Signature"},
		{name: "an incomplete call", signature: sign(now, completed), body: completed, want: "timings is missing"},
		{name: "no data", signature: sign(now, `{"type":"x"}`), body: `{"type":"x"}`, want: "data is missing"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, err := specDelivery(kit.Delivery{
				Header: http.Header{"X-Service-Signature": {row.signature}}, Body: []byte(row.body), At: now,
			}, secret)
			wantFault(t, err, row.want)
		})
	}
}
