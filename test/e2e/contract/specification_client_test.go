// A client that was written from the specification of the service alone. It knows no extension, no
// description and no code of the service. It checks each response and each webhook against the
// specification's tables, and ignores fields and event types that the tables do not list.

package contract

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ringfence.dev/test/kit"
)

// specType checks the type of a JSON value. It returns the reason if the value has another type.
type specType func(value any) error

// specField is a row of a table of fields.
type specField struct {
	name string
	is   specType
	// optional is true if the table permits that the key is missing.
	optional bool
}

func specText(value any) error {
	if _, ok := value.(string); !ok {
		return fmt.Errorf("%v is no string", value)
	}
	return nil
}

func specBool(value any) error {
	if _, ok := value.(bool); !ok {
		return fmt.Errorf("%v is no boolean", value)
	}
	return nil
}

func specNumber(value any) error {
	if _, ok := value.(float64); !ok {
		return fmt.Errorf("%v is no number", value)
	}
	return nil
}

func specInteger(value any) error {
	if number, ok := value.(float64); !ok || number != math.Trunc(number) {
		return fmt.Errorf("%v is no integer", value)
	}
	return nil
}

func specAnyObject(value any) error {
	if _, ok := value.(map[string]any); !ok {
		return fmt.Errorf("%v is no object", value)
	}
	return nil
}

// specMatch returns a type of strings that match an expression.
func specMatch(name, expression string) specType {
	pattern := regexp.MustCompile(expression)
	return func(value any) error {
		if text, ok := value.(string); !ok || !pattern.MatchString(text) {
			return fmt.Errorf("%v is no %s", value, name)
		}
		return nil
	}
}

func specEnum(values ...string) specType {
	return func(value any) error {
		if text, ok := value.(string); !ok || !slices.Contains(values, text) {
			return fmt.Errorf("%v is none of %v", value, values)
		}
		return nil
	}
}

func specTime(value any) error {
	text, _ := value.(string)
	if _, err := time.Parse(time.RFC3339Nano, text); err != nil {
		return fmt.Errorf("%v is no date-time", value)
	}
	return nil
}

func specNull(is specType) specType {
	return func(value any) error {
		if value == nil {
			return nil
		}
		return is(value)
	}
}

func specArray(is specType) specType {
	return func(value any) error {
		items, ok := value.([]any)
		if !ok {
			return fmt.Errorf("%v is no array", value)
		}
		for i, item := range items {
			if err := is(item); err != nil {
				return fmt.Errorf("item %d: %w", i, err)
			}
		}
		return nil
	}
}

func specObject(fields ...specField) specType {
	return func(value any) error {
		object, ok := value.(map[string]any)
		if !ok {
			return fmt.Errorf("%v is no object", value)
		}
		var wrong []error
		for _, field := range fields {
			member, there := object[field.name]
			switch {
			case !there && !field.optional:
				wrong = append(wrong, fmt.Errorf("%s is missing", field.name))
			case there:
				if err := field.is(member); err != nil {
					wrong = append(wrong, fmt.Errorf("%s: %w", field.name, err))
				}
			}
		}
		return errors.Join(wrong...)
	}
}

// specPage is the type of every list: data and has_more.
func specPage(item specType) specType {
	return specObject(specField{name: "data", is: specArray(item)}, specField{name: "has_more", is: specBool})
}

// These are the types of the specification, in the order of its parts 2 and 4.
var (
	specUUID   = specMatch("uuid", `^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	specPhone  = specMatch("E.164 number", `^\+[1-9][0-9]{1,14}$`)
	specSecret = specMatch("full secret", `^whsec_[^…]+$`)
	specMasked = specMatch("masked secret", `^whsec_(…|\.\.\.).{4}$`)

	specDND       = specEnum("unknown", "clean", "dnd")
	specConsent   = specEnum("unknown", "consented", "withdrawn")
	specDirection = specEnum("inbound", "outbound")
	specEventType = specEnum("call.ringing", "call.answered", "call.completed", "call.failed", "call.no_answer",
		"call.busy", "webhook.test")

	specLightCall = specObject(
		specField{name: "id", is: specUUID}, specField{name: "direction", is: specDirection},
		specField{name: "from", is: specText}, specField{name: "to", is: specText}, specField{name: "status", is: specText},
		specField{name: "agent_id", is: specUUID}, specField{name: "contact_id", is: specNull(specUUID)},
		specField{name: "outcome", is: specNull(specText)}, specField{name: "talk_seconds", is: specNull(specInteger)},
		specField{name: "created_at", is: specTime}, specField{name: "external_ref", is: specNull(specText)},
	)
	specTimings = specObject(
		specField{name: "queued_at", is: specNull(specTime)}, specField{name: "dialed_at", is: specNull(specTime)},
		specField{name: "answered_at", is: specNull(specTime)}, specField{name: "ended_at", is: specNull(specTime)},
		specField{name: "ring_seconds", is: specNull(specInteger)},
		specField{name: "talk_seconds", is: specNull(specInteger)},
		specField{name: "total_seconds", is: specNull(specInteger)},
	)
	// The specification lists the keys of a summary that were seen. Any of them can be missing.
	specSummary = specObject(
		specField{name: "outcome", is: specText, optional: true},
		specField{name: "confidence", is: specNumber, optional: true},
		specField{name: "next_action", is: specText, optional: true},
		specField{name: "business_type", is: specText, optional: true},
		specField{name: "customer_name", is: specText, optional: true},
		specField{name: "key_interests", is: specArray(specText), optional: true},
		specField{name: "key_objections", is: specArray(specText), optional: true},
		specField{name: "scheduled_for", is: specTime, optional: true},
	)
	specFullCall = specObject(
		specField{name: "call_id", is: specUUID}, specField{name: "direction", is: specDirection},
		specField{name: "from", is: specPhone}, specField{name: "to", is: specPhone},
		specField{name: "agent_id", is: specUUID},
		specField{name: "contact_id", is: specNull(specUUID)}, specField{name: "campaign_id", is: specNull(specUUID)},
		specField{name: "status", is: specText}, specField{name: "hangup_cause", is: specNull(specText)},
		specField{name: "timings", is: specTimings}, specField{name: "credits_charged", is: specNull(specNumber)},
		specField{name: "outcome", is: specNull(specText)}, specField{name: "disposition", is: specNull(specText)},
		specField{name: "summary", is: specNull(specSummary)}, specField{name: "external_ref", is: specNull(specText)},
		specField{name: "recording_url", is: specText, optional: true},
		specField{name: "transcript", is: specAnyObject, optional: true},
	)
	specRequest = specObject(
		specField{name: "id", is: specUUID},
		specField{name: "status", is: specEnum("queued", "dialing", "completed", "blocked", "failed", "canceled")},
		specField{name: "call_id", is: specNull(specUUID)}, specField{name: "to", is: specText},
		specField{name: "agent_id", is: specUUID}, specField{name: "external_ref", is: specNull(specText)},
		specField{name: "scheduled_for", is: specTime}, specField{name: "error_code", is: specNull(specText)},
		specField{name: "error_detail", is: specNull(specText)}, specField{name: "dialed_at", is: specNull(specTime)},
		specField{name: "completed_at", is: specNull(specTime)}, specField{name: "created_at", is: specTime},
		specField{name: "updated_at", is: specTime},
	)
	specContact = specObject(
		specField{name: "id", is: specUUID}, specField{name: "phone_e164", is: specPhone},
		specField{name: "name", is: specNull(specText)}, specField{name: "email", is: specNull(specText)},
		specField{name: "external_id", is: specNull(specText)}, specField{name: "variables", is: specAnyObject},
		specField{name: "metadata", is: specAnyObject}, specField{name: "consent_status", is: specConsent},
		specField{name: "dnd_status", is: specDND}, specField{name: "created_at", is: specTime},
		specField{name: "updated_at", is: specTime},
	)
	specOptOut = specObject(
		specField{name: "phone_e164", is: specText}, specField{name: "dnd_status", is: specDND},
		specField{name: "consent_status", is: specConsent},
	)
	specSubscription = specObject(
		specField{name: "id", is: specUUID}, specField{name: "name", is: specText},
		specField{name: "url", is: specMatch("https URL", `^https://`)},
		specField{name: "events", is: specArray(specEventType)},
		specField{name: "status", is: specEnum("active", "paused", "failed")},
		specField{name: "signing_secret", is: specMasked}, specField{name: "consecutive_failures", is: specInteger},
		specField{name: "last_success_at", is: specNull(specTime)},
		specField{name: "last_failure_at", is: specNull(specTime)},
		specField{name: "created_at", is: specTime},
	)
	specWallet = specObject(
		specField{name: "balance", is: specNumber}, specField{name: "currency", is: specMatch("currency code", `^[A-Z]{3}$`)},
		specField{name: "last_transaction_at", is: specNull(specTime)},
	)
	specCreated = specObject(
		specField{name: "id", is: specUUID}, specField{name: "signing_secret", is: specSecret},
		specField{name: "store_this", is: specText},
	)
	specRotated = specObject(
		specField{name: "signing_secret", is: specSecret}, specField{name: "store_this", is: specText},
	)
	specDeleted = specObject(specField{name: "deleted", is: specBool}, specField{name: "id", is: specUUID})
	specQueued  = specObject(
		specField{name: "queued", is: specBool}, specField{name: "delivery_id", is: specUUID},
		specField{name: "event_id", is: specUUID},
	)
	specRefusal = specObject(specField{name: "error", is: specObject(
		specField{name: "code", is: specText}, specField{name: "message", is: specMatch("description", `\S`)},
	)})
)

// specCodes is the table of part 7: the codes of each error status.
var specCodes = map[int][]string{
	401: {"invalid_api_key"}, 402: {"insufficient_credits"},
	403: {"missing_scope", "api_not_enabled", "webhooks_not_enabled"},
	404: {"not_found", "transcript_not_available", "recording_not_available"},
	409: {"contact_exists", "subscription_limit_reached", "subscription_not_active", "not_cancelable"},
	422: {"validation_error", "invalid_phone", "invalid_agent", "invalid_contact", "contact_phone_mismatch",
		"recipient_dnd", "consent_withdrawn", "outside_calling_hours", "invalid_url", "no_events", "invalid_event_type",
		"invalid_status", "invalid_action"},
	429: {"rate_limited"},
}

// specOperation is a row of the tables of part 4: the successful responses by their status, and the
// codes of the errors that the row lists.
type specOperation struct {
	method, path string
	success      map[int]specType
	errors       []string
}

// specEverywhere are the errors that the specification lists for every request.
var specEverywhere = []string{"invalid_api_key", "missing_scope", "api_not_enabled", "rate_limited"}

var specOperations = []specOperation{
	{"GET", "/v1/calls", map[int]specType{200: specPage(specLightCall)}, []string{"validation_error"}},
	{"GET", "/v1/calls/{id}", map[int]specType{200: specFullCall}, []string{"not_found"}},
	// The shape of a transcript is not specified.
	{"GET", "/v1/calls/{id}/transcript", map[int]specType{200: specAnyObject}, []string{"transcript_not_available"}},
	{"GET", "/v1/calls/{id}/recording", map[int]specType{200: specObject(
		specField{name: "url", is: specText}, specField{name: "expires_in", is: specInteger},
	)}, []string{"recording_not_available"}},
	{"POST", "/v1/calls", map[int]specType{202: specRequest, 200: specRequest}, []string{"invalid_agent",
		"invalid_contact", "contact_phone_mismatch", "invalid_phone", "recipient_dnd", "consent_withdrawn",
		"outside_calling_hours", "validation_error", "insufficient_credits"}},
	{"GET", "/v1/call-requests", map[int]specType{200: specPage(specRequest)}, []string{"validation_error"}},
	{"GET", "/v1/call-requests/{id}", map[int]specType{200: specRequest}, []string{"not_found"}},
	{"POST", "/v1/call-requests/{id}/cancel", map[int]specType{200: specRequest}, []string{"not_cancelable", "not_found"}},
	{"GET", "/v1/contacts", map[int]specType{200: specPage(specContact)}, []string{"validation_error"}},
	{"POST", "/v1/contacts", map[int]specType{201: specContact}, []string{"contact_exists", "validation_error"}},
	{"GET", "/v1/contacts/{id}", map[int]specType{200: specContact}, []string{"not_found"}},
	{"PATCH", "/v1/contacts/{id}", map[int]specType{200: specContact}, []string{"not_found", "validation_error"}},
	{"POST", "/v1/opt-outs", map[int]specType{200: specOptOut}, []string{"invalid_phone", "validation_error"}},
	{"GET", "/v1/opt-outs/{phone}", map[int]specType{200: specOptOut}, []string{"not_found", "invalid_phone"}},
	{"DELETE", "/v1/opt-outs/{phone}", map[int]specType{200: specOptOut}, []string{"not_found", "invalid_phone"}},
	{"GET", "/v1/wallet", map[int]specType{200: specWallet}, nil},
	{"GET", "/v1/webhook-subscriptions", map[int]specType{200: specPage(specSubscription)},
		[]string{"webhooks_not_enabled"}},
	{"POST", "/v1/webhook-subscriptions", map[int]specType{201: specCreated}, []string{"webhooks_not_enabled",
		"invalid_url", "no_events", "invalid_event_type", "subscription_limit_reached", "validation_error"}},
	{"PATCH", "/v1/webhook-subscriptions/{id}", map[int]specType{200: specSubscription}, []string{"webhooks_not_enabled",
		"invalid_status", "invalid_action", "invalid_url", "no_events", "invalid_event_type", "not_found",
		"subscription_limit_reached"}},
	{"DELETE", "/v1/webhook-subscriptions/{id}", map[int]specType{200: specDeleted},
		[]string{"webhooks_not_enabled", "not_found"}},
	{"POST", "/v1/webhook-subscriptions/{id}/rotate-secret", map[int]specType{200: specRotated},
		[]string{"webhooks_not_enabled", "not_found"}},
	{"POST", "/v1/webhook-subscriptions/{id}/test", map[int]specType{202: specQueued}, []string{"webhooks_not_enabled",
		"subscription_not_active", "not_found"}},
}

// specNotTried are the rows of specOperations that specClient does not produce, with the reason.
var specNotTried = map[string]string{
	"GET /v1/calls/{id}/transcript 200": "the shape is not specified",
	"GET /v1/calls/{id}/recording 200":  "recordings are not enabled",
}

// specClient sends requests with one key. It reports each violation of the specification.
type specClient struct {
	base, key string
	http      *http.Client
	// seen contains operations with a status or an error code, such as "GET /v1/wallet 200".
	seen map[string]bool
}

// withKey returns a client with another key, which records into the same map.
func (c *specClient) withKey(key string) *specClient {
	return &specClient{base: c.base, key: key, http: c.http, seen: c.seen}
}

// ask sends a request of the operation in specOperations. The values replace the parameters of the
// path. It returns the body of the response.
func (c *specClient) ask(
	t *testing.T, operation string, values []string, query url.Values, body any, header ...string,
) map[string]any {
	t.Helper()
	at := slices.IndexFunc(specOperations, func(o specOperation) bool { return o.method+" "+o.path == operation })
	if at < 0 {
		t.Fatalf("%s is not in the specification", operation)
	}
	path := specOperations[at].path
	for _, value := range values {
		path = regexp.MustCompile(`\{\w+\}`).ReplaceAllLiteralString(path, url.PathEscape(value))
	}
	if query != nil {
		path += "?" + query.Encode()
	}
	var payload io.Reader = http.NoBody
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		payload = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(t.Context(), specOperations[at].method, c.base+path, payload)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+c.key)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := c.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := specOperations[at].check(response, content)
	if err != nil {
		t.Errorf("%s = %d %s violates the specification: %v", operation, response.StatusCode, content, err)
	}
	c.seen[operation+" "+outcome] = true
	answer := map[string]any{}
	_ = json.Unmarshal(content, &answer) // check has reported a body that is no object
	answer["(outcome)"] = outcome
	return answer
}

// check compares a response with the specification. outcome is the status of a success, or the code
// of an error.
func (o specOperation) check(response *http.Response, content []byte) (outcome string, err error) {
	if kind := response.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/json") {
		return "", fmt.Errorf("the content type is %q", kind)
	}
	var body any
	if err := json.Unmarshal(content, &body); err != nil {
		return "", fmt.Errorf("the body is no JSON: %w", err)
	}
	if response.StatusCode < 300 {
		is := o.success[response.StatusCode]
		if is == nil {
			return "", fmt.Errorf("the status %d is not documented", response.StatusCode)
		}
		return strconv.Itoa(response.StatusCode), is(body)
	}
	if err := specRefusal(body); err != nil {
		return "", err
	}
	code := body.(map[string]any)["error"].(map[string]any)["code"].(string) // specRefusal has checked the types
	switch {
	case !slices.Contains(specCodes[response.StatusCode], code):
		return code, fmt.Errorf("the status %d does not have the code %s", response.StatusCode, code)
	case !slices.Contains(o.errors, code) && !slices.Contains(specEverywhere, code):
		return code, fmt.Errorf("the operation does not have the code %s", code)
	case response.StatusCode == http.StatusTooManyRequests:
		if _, err := strconv.Atoi(response.Header.Get("Retry-After")); err != nil {
			return code, fmt.Errorf("Retry-After is %q", response.Header.Get("Retry-After"))
		}
	case code == "contact_exists":
		if !bytes.Contains(content, []byte(`"existing_id"`)) {
			return code, errors.New("existing_id is missing")
		}
	}
	return code, nil
}

// want sends a request and requires the status of a success or the code of an error.
func (c *specClient) want(
	t *testing.T, outcome, operation string, values []string, query url.Values, body any, header ...string,
) map[string]any {
	t.Helper()
	answer := c.ask(t, operation, values, query, body, header...)
	if answer["(outcome)"] != outcome {
		t.Fatalf("%s %v %v: outcome = %v %v, want %s", operation, values, body, answer["(outcome)"], answer["error"], outcome)
	}
	return answer
}

// specDelivery checks a webhook: the signature and the body. It returns the type of the event.
func specDelivery(d kit.Delivery, secrets ...string) (kind string, err error) {
	signature := regexp.MustCompile(`^t=(\d+),v1=([0-9a-f]{64})$`).FindStringSubmatch(d.Header.Get("X-Service-Signature"))
	if signature == nil {
		return "", fmt.Errorf("X-Service-Signature is %q", d.Header.Get("X-Service-Signature"))
	}
	at, err := strconv.ParseInt(signature[1], 10, 64)
	if err != nil || math.Abs(d.At.Sub(time.Unix(at, 0)).Seconds()) > 300 {
		return "", fmt.Errorf("the time of the signature is %s, received at %s", signature[1], d.At)
	}
	valid := slices.ContainsFunc(secrets, func(secret string) bool {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(signature[1] + "." + string(d.Body)))
		return hmac.Equal([]byte(hex.EncodeToString(mac.Sum(nil))), []byte(signature[2]))
	})
	if !valid {
		return "", errors.New("the signature is wrong")
	}
	var body any
	if err := json.Unmarshal(d.Body, &body); err != nil {
		return "", fmt.Errorf("the body is no JSON: %w", err)
	}
	envelope := specObject(specField{name: "type", is: specText}, specField{name: "data", is: specAnyObject})
	if err := envelope(body); err != nil {
		return "", err
	}
	event := body.(map[string]any) // envelope has checked the types
	kind = event["type"].(string)
	if kind == "call.completed" {
		return kind, specFullCall(event["data"])
	}
	return kind, nil
}
