package contract

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/test/kit/sharedstack"
)

// inOneHour returns a value of scheduled_for that is after the end of the tests.
func inOneHour() string { return time.Now().Add(time.Hour).UTC().Format(time.RFC3339) }

func deep(levels int) json.RawMessage {
	return json.RawMessage(strings.Repeat(`{"a":`, levels-1) + `{}` + strings.Repeat(`}`, levels-1))
}

func wide(keys int) set {
	object := set{}
	for i := range keys {
		object[fmt.Sprint("k", i)] = i
	}
	return object
}

func documents() []struct {
	name  string
	value any
	ok    bool
} {
	return []struct {
		name  string
		value any
		ok    bool
	}{
		{"an empty object", set{}, true},
		{"null means that the field is absent", nil, true},
		{"100 keys", wide(100), true},
		{"101 keys", wide(101), false},
		{"5 levels", deep(5), true},
		{"6 levels", deep(6), false},
		{"under 64 KiB", set{"a": strings.Repeat("x", 64<<10-64)}, true},
		{"over 64 KiB", set{"a": strings.Repeat("x", 64<<10)}, false},
		{"an array", []int{1}, false},
		{"text", "x", false},
		{"a number", 1, false},
		{"a NUL byte", json.RawMessage(`{"a":"\u0000"}`), false},
		{"every kind of value", json.RawMessage(`{"s":"ü","n":1.25,"b":true,"l":[1,"x",null],"o":{"a":null}}`), true},
	}
}

func TestPlacing_ValidatesEachField(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "1000")
	type row struct {
		name    string
		members []any
		code    string // the error code, or "" if the response is 202
		field   string
	}
	rows := []row{
		{"only the required fields", nil, "", ""},
		{"unknown fields are ignored", []any{"priority", "high", "status", "completed", "id", 7}, "", ""},
		{
			"null means that the field is absent",
			[]any{"contact_id", nil, "external_ref", nil, "idempotency_key", nil, "schedule_if_outside_hours", nil},
			"",
			"",
		},
		{"external_ref of 255 characters", []any{"external_ref", strings.Repeat("ü", 255)}, "", ""},
		{"external_ref of 256 characters", []any{"external_ref", strings.Repeat("x", 256)}, "validation_error", "external_ref"},
		{"external_ref that is a number", []any{"external_ref", 1042}, "validation_error", "external_ref"},
		{"no agent_id", []any{"agent_id", nil}, "validation_error", "agent_id"},
		{"an agent_id that is a number", []any{"agent_id", 7}, "validation_error", "agent_id"},
		{"an agent_id that is no UUID", []any{"agent_id", "Ada"}, "validation_error", "agent_id"},
		{"an agent_id in braces", []any{"agent_id", "{" + uuid.NewString() + "}"}, "validation_error", "agent_id"},
		{"an agent_id without hyphens", []any{"agent_id", strings.ReplaceAll(uuid.NewString(), "-", "")}, "validation_error", "agent_id"},
		{"an unknown agent_id", []any{"agent_id", uuid.NewString()}, "invalid_agent", ""},
		{"to is missing", []any{"to", nil}, "validation_error", "to"},
		{"to as a number", []any{"to", 14155550101}, "validation_error", "to"},
		{"a contact_id that is no UUID", []any{"contact_id", "x"}, "validation_error", "contact_id"},
		{"an unknown contact_id", []any{"contact_id", uuid.NewString()}, "invalid_contact", ""},
		{"schedule_if_outside_hours as text", []any{"schedule_if_outside_hours", "true"}, "validation_error", "schedule_if_outside_hours"},
		{"an idempotency_key that is a number", []any{"idempotency_key", 7}, "validation_error", "idempotency_key"},
		{"a NUL byte in external_ref", []any{"external_ref", "a\x00b"}, "validation_error", "external_ref"},
	}
	for _, to := range []string{"", "14155550101", "+1 415 555 0101", "+1415555", "+0415555010", "+1415555010123456", "tel:+14155550101", "+１４１５５５５０１０１", "+1415555010a", "anonymous", " +14155550101", "+14155550101\n"} {
		code := "invalid_phone"
		if to == "+1415555" { // a number with seven digits is long enough
			continue
		}
		rows = append(rows, row{fmt.Sprintf("to %q", to), []any{"to", to}, code, "to"})
	}
	// a premium number and a satellite number
	for _, to := range []string{"+19005550101", "+882161234567", "+881612345678"} {
		rows = append(rows, row{"a number that is never dialed " + to, []any{"to", to}, "validation_error", "to"})
	}
	for _, d := range documents() {
		r := row{"variables: " + d.name, []any{"variables", d.value}, "", ""}
		if !d.ok {
			r.code, r.field = "validation_error", "variables"
		}
		rows = append(rows, r)
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			order := w.order(number(1), append([]any{"scheduled_for", inOneHour()}, row.members...)...)
			if row.code == "" {
				got := w.write.want(t, 202, "POST", "/v1/calls", order)
				sharedstack.Equal(t, "status", got.text("status"), "queued")
				sharedstack.Equal(t, "agent_id", got.text("agent_id"), w.agent)
				sharedstack.Equal(t, "call_id", got.text("call_id"), "")
				sharedstack.Equal(t, "error_code", got.text("error_code"), "")
				mustBeBornWithItsID(t, got.text("id"), got.text("created_at"))
				return
			}
			if got := w.write.refused(t, 422, row.code, "POST", "/v1/calls", order); !strings.Contains(got.body, row.field) {
				t.Errorf("%s does not name %s", got.body, row.field)
			}
		})
	}
}

func TestPlacing_RefusesDestinationsThatAreNotAllowed(t *testing.T) {
	w := workspace(t, set{"destinations": []string{"+1415", "+49"}})
	w.topUp(t, "1000")
	w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1), "scheduled_for", inOneHour()))
	until(t, "the pre-check refuses the destination", func() bool {
		return w.write.send(t, "POST", "/v1/calls", w.order("+442079460000")).status == 422
	})
	for _, to := range []string{"+442079460001", "+12125550101"} {
		if got := w.write.refused(t, 422, "validation_error", "POST", "/v1/calls", w.order(to)); !strings.Contains(got.body, `"to `) {
			t.Errorf("%s does not name to", got.body)
		}
	}
}

func TestPlacing_CreatesTheContactOnce(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "10")
	to := number(1)
	find := func() answer { return w.read.want(t, 200, "GET", "/v1/contacts?phone="+to, nil) }
	if got := find().ids(); len(got) != 0 {
		t.Fatalf("contacts = %v before the first call", got)
	}
	first := w.ended(t, w.write.want(t, 202, "POST", "/v1/calls", w.order(to)).text("id"))
	made := find().ids()
	if len(made) != 1 {
		t.Fatalf("contacts = %v, want the one that the POST created", made)
	}
	second := w.ended(t, w.write.want(t, 202, "POST", "/v1/calls", w.order(to, "contact_id", made[0])).text("id"))
	if got := find().ids(); len(got) != 1 {
		t.Errorf("contacts: length of got = %d, want 1", len(got))
	} else if got[0] != made[0] {
		t.Errorf("contacts: got[0] = %v, want %v", got[0], made[0])
	}
	for _, request := range []answer{first, second} {
		if got := w.read.want(t, 200, "GET", "/v1/calls/"+request.text("call_id"), nil).text("contact_id"); got != made[0] {
			t.Errorf("call's contact_id = %s, want %s", got, made[0])
		}
	}
	if got := w.read.want(t, 200, "GET", "/v1/calls?contact_id="+made[0], nil).ids(); len(got) != 2 {
		t.Errorf("calls of the contact = %v, want both", got)
	}
	another := number(1)
	w.write.refused(t, 422, "contact_phone_mismatch", "POST", "/v1/calls", w.order(another, "contact_id", made[0]))
	if got := w.read.want(t, 200, "GET", "/v1/contacts?phone="+another, nil).ids(); len(got) != 0 {
		t.Errorf("a refusal left the contact %v", got)
	}
}

// TestPlacing_MergesVariablesIfEveryCheckPassed checks when variables are merged into the contact.
// They are merged if every compliance check has passed, even if the credit is insufficient. They
// are never merged on a replay.
func TestPlacing_MergesVariablesIfEveryCheckPassed(t *testing.T) {
	w := workspace(t)
	w.topUp(t, holdOfOneCall)
	to := number(1)
	post := func(status int, variables any, members ...any) {
		t.Helper()
		w.write.want(t, status, "POST", "/v1/calls", w.order(to,
			append([]any{"variables", variables, "scheduled_for", inOneHour()}, members...)...))
	}
	holds := func(want string) {
		t.Helper()
		contact := w.read.want(t, 200, "GET", "/v1/contacts?phone="+to, nil).members()["data"].([]any)[0].(map[string]any)
		got, _ := json.Marshal(contact["variables"])
		if string(got) != want {
			t.Errorf("variables = %s, want %s", got, want)
		}
	}
	post(202, set{"a": 1, "b": set{"x": 1, "y": 2}, "gone": "x"}, "idempotency_key", "k")
	holds(`{"a":1,"b":{"x":1,"y":2},"gone":"x"}`)
	post(200, set{"a": "replayed"}, "idempotency_key", "k")
	holds(`{"a":1,"b":{"x":1,"y":2},"gone":"x"}`)
	post(402, set{"b": set{"z": 3}, "gone": nil, "c": 12345678901234567})
	holds(`{"a":1,"b":{"z":3},"c":12345678901234567}`)
	post(422, set{"a": "no agent"}, "agent_id", uuid.NewString())
	post(422, set{"a": "no contact"}, "contact_id", uuid.NewString())
	post(422, wide(99)) // the contact would have 102 keys after the merge, and the maximum is 100
	w.consent(t, to, "withdrawn")
	post(422, set{"a": "withdrawn"})
	w.write.want(t, 200, "POST", "/v1/opt-outs", set{"phone_e164": to})
	post(422, set{"a": "opted out"})
	holds(`{"a":1,"b":{"z":3},"c":12345678901234567}`)
}
