package callrequests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/phone"
	"ringfence.dev/proto/openapi"
)

// These constants limit the fields of a call request (docs/reference/api/README.md#field-sizes,
// docs/reference/api/call-requests.md#call-variables).
const (
	maxKey         = 255
	maxExternalRef = 255
	// maxVariables limits the size of the variables in the body, in bytes. After the merge with the
	// contact's variables, only 64 KiB are allowed. The body can be larger, because it can also
	// remove variables.
	maxVariables = 192 << 10
	maxAhead     = 366 * 24 * time.Hour
	// maxBehind limits how far in the past scheduled_for can be. The clock or the queue of a client
	// can be late by days. A time before this limit is a mistake, for example a zero value.
	maxBehind = 7 * 24 * time.Hour
)

// readKey returns the idempotency key in the body. If the body has no key or null, readKey returns
// the key in the header. It returns "" if the request has no key.
func readKey(body map[string]json.RawMessage, headerKeys []string) (string, error) {
	key, where := (*string)(nil), "idempotency_key"
	if raw, given := body["idempotency_key"]; given && json.Unmarshal(raw, &key) != nil {
		return "", apierr.Validation(where, "must be a string.")
	}
	if key == nil {
		where = "Idempotency-Key"
		switch len(headerKeys) {
		case 0:
			return "", nil
		case 1:
			key = &headerKeys[0]
		default:
			return "", apierr.Validation(where, "must stand once in the headers.")
		}
	}
	if *key == "" || len(*key) > maxKey || strings.ContainsFunc(*key, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", apierr.Validation(where, "must be 1 to %d printable ASCII characters.", maxKey)
	}
	return *key, nil
}

// readOrder decodes and validates the body. The error validation_error names every field that is
// missing or invalid. The error invalid_phone is returned only if no field is missing or invalid.
// ScheduledFor is nil for a call that is due now.
func readOrder(body map[string]json.RawMessage, now time.Time) (order openapi.CreateCall, err error) {
	f := bodyReader{body: body}
	order.ScheduleIfOutsideHours = readMember[bool](&f, "schedule_if_outside_hours", "must be true or false.")
	if id := f.id("agent_id"); id != nil {
		order.AgentID = *id
	} else if f.absent("agent_id") {
		f.addProblem("agent_id", "is missing; name the agent that holds the conversation.")
	}
	if to := f.readText("to"); to != nil {
		order.To = *to
	} else if f.absent("to") {
		f.addProblem("to", "is missing; give the number to call, such as +14155550123.")
	}
	order.ContactID = f.id("contact_id")
	if readMember[map[string]json.RawMessage](&f, "variables", "must be an object.") != nil {
		order.Variables = compact(f.body["variables"])
	}
	if len(order.Variables) > maxVariables {
		f.addProblem("variables", "may be at most 64 KiB of JSON after merging.")
	}
	order.ExternalRef = f.readText("external_ref")
	if order.ExternalRef != nil && utf8.RuneCountInString(*order.ExternalRef) > maxExternalRef {
		f.addProblem("external_ref", "must have at most %d characters.", maxExternalRef)
	}
	order.ScheduledFor = openapi.TimestampOrNull(f.readScheduledFor("scheduled_for", now))
	if len(f.problems) > 0 {
		return order, apierr.Unprocessable("validation_error", "%s", strings.Join(f.problems, " "))
	}
	if _, ok := phone.Parse(order.To); !ok {
		return order, apierr.Unprocessable("invalid_phone", "to must be an E.164 number such as +14155550123.")
	}
	return order, nil
}

func compact(raw json.RawMessage) json.RawMessage {
	var text bytes.Buffer
	if json.Compact(&text, raw) != nil {
		return raw // unreachable: raw was already decoded as JSON
	}
	return text.Bytes()
}

// bodyReader reads the members of a body and collects the errors. A member that is null counts as
// absent.
type bodyReader struct {
	body     map[string]json.RawMessage
	problems []string
}

func (f *bodyReader) addProblem(name, format string, args ...any) {
	f.problems = append(f.problems, name+" "+fmt.Sprintf(format, args...))
}

func (f *bodyReader) absent(name string) bool {
	raw, given := f.body[name]
	return !given || string(raw) == "null"
}

// readMember returns the value of the member with this name, or nil if the member is absent. If the
// value has another type, readMember adds an error to f.problems and returns nil.
func readMember[T any](f *bodyReader, name, fault string) *T {
	var value *T
	if !f.absent(name) && json.Unmarshal(f.body[name], &value) != nil {
		f.addProblem(name, "%s", fault)
		return nil
	}
	return value
}

func (f *bodyReader) readText(name string) *string {
	return readMember[string](f, name, "must be a string.")
}

func (f *bodyReader) id(name string) *uuid.UUID {
	s := f.readText(name)
	if s == nil {
		return nil
	}
	id, err := uuid.Parse(*s)
	if err != nil || len(*s) != 36 { // uuid.Parse also accepts forms that are not 36 characters long
		f.addProblem(name, "must be a UUID.")
		return nil
	}
	return &id
}

// readScheduledFor reads a date-time. It returns nil if the call is due now: the member is absent,
// or the time is at most maxBehind in the past. An earlier time, or a time more than maxAhead in
// the future, is an error.
func (f *bodyReader) readScheduledFor(name string, now time.Time) *time.Time {
	s := f.readText(name)
	if s == nil {
		return nil
	}
	at, err := httpserver.ParseTime(*s)
	switch {
	case err != nil:
		f.addProblem(name, "must be a date-time with an offset, such as 2026-06-04T09:00:00Z.")
	case at.After(now.Add(maxAhead)):
		f.addProblem(name, "must be at most 366 days ahead.")
	case at.Before(now.Add(-maxBehind)):
		f.addProblem(name, "is more than 7 days in the past. Leave it out to call now, or send a time in the future.")
	case at.After(now):
		at = at.UTC().Truncate(time.Millisecond)
		return &at
	}
	return nil
}
