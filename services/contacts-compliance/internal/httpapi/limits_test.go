package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"ringfence.dev/proto/compliancev1"
)

// letters returns n letters of two bytes each, because the limits count characters.
func letters(n int) string { return strings.Repeat("é", n) }

func keys(n int) string {
	members := make([]string, n)
	for i := range members {
		members[i] = fmt.Sprintf(`"k%d":%d`, i, i)
	}
	return "{" + strings.Join(members, ",") + "}"
}

// levels returns an object that is nested n levels deep. The outermost object is level 1.
func levels(n int) string { return strings.Repeat(`{"a":`, n-1) + "{}" + strings.Repeat("}", n-1) }

func bytes64k(more int) string {
	const emptyBody = len(`{"a":""}`)
	return `{"a":"` + strings.Repeat("x", 64<<10-emptyBody+more) + `"}`
}

func TestLimits_AcceptTheMaximumAndRefuseMoreThanTheMaximum(t *testing.T) {
	t.Parallel()
	r := start(t)
	path := "/v1/contacts/" + r.create(t, `{"phone_e164":"+15005550001"}`)
	next := 1
	post := func(members string) response {
		next++
		return r.customer(t, http.MethodPost, "/v1/contacts", fmt.Sprintf(`{"phone_e164":"+1500555%04d",%s}`, next, members))
	}
	patch := func(members string) response { return r.customer(t, http.MethodPatch, path, "{"+members+"}") }
	optOut := func(members string) response {
		return r.customer(t, http.MethodPost, "/v1/opt-outs", `{"phone_e164":"+15005559999",`+members+"}")
	}
	consent := func(members string) response {
		return r.operator(t, http.MethodPut, "/admin/v1/workspaces/%s/contacts/+15005559999/consent",
			`{"status":"consented",`+members+"}")
	}
	quoted := func(text string) string { return `"` + text + `"` }
	for _, row := range []struct {
		name           string
		send           func(string) response
		field, at, one string
	}{
		{name: "the name of a new contact", send: post, field: "name", at: quoted(letters(200)), one: quoted(letters(201))},
		{name: "the name of a contact", send: patch, field: "name", at: quoted(letters(200)), one: quoted(letters(201))},
		{name: "the reason of an opt-out", send: optOut, field: "reason", at: quoted(letters(500)),
			one: quoted(letters(501))},
		{name: "the source of a consent", send: consent, field: "source", at: quoted(letters(200)),
			one: quoted(letters(201))},
		{name: "evidence that is text", send: consent, field: "evidence", at: `"` + letters(2000) + `","source":"form"`,
			one: `"` + letters(2001) + `","source":"form"`},
		{name: "the keys of evidence", send: consent, field: "evidence", at: keys(100) + `,"source":"form"`,
			one: keys(101) + `,"source":"form"`},
		{name: "the keys of new metadata", send: post, field: "metadata", at: keys(100), one: keys(101)},
		{name: "the depth of new metadata", send: post, field: "metadata", at: levels(5), one: levels(6)},
		{name: "the size of new metadata", send: post, field: "metadata", at: bytes64k(0), one: bytes64k(1)},
		{name: "lists count as levels of metadata",
			send: post, field: "metadata", at: `{"a":[[[[1]]]]}`, one: `{"a":[[[[[]]]]]}`},
		{name: "the depth of metadata", send: patch, field: "metadata", at: levels(5), one: levels(6)},
	} {
		if got := row.send(`"` + row.field + `":` + row.at); got.status >= 300 {
			t.Errorf("%s at the limit = %d %.200s, want success", row.name, got.status, got.raw)
		}
		got := row.send(`"` + row.field + `":` + row.one)
		r.checkResponse(t, got, http.StatusUnprocessableEntity, "validation_error")
		if !strings.HasPrefix(got.message(), row.field+" ") {
			t.Errorf("%s: message = %q, want it to name %s", row.name, got.message(), row.field)
		}
	}
}

func TestLimits_ApplyToMergedMetadata(t *testing.T) {
	t.Parallel()
	r := start(t)
	for _, row := range []struct{ name, first, fits, refused string }{
		{name: "keys", first: keys(99), fits: `{"one more":1}`, refused: `{"too many":1}`},
		{name: "a merge that replaces one key by another",
			first: keys(100), fits: `{"k0":null,"other":1}`, refused: `{"another":1}`},
		{name: "bytes", first: `{"a":"` + strings.Repeat("x", 40<<10) + `"}`,
			fits: `{"b":"` + strings.Repeat("x", 20<<10) + `"}`, refused: `{"c":"` + strings.Repeat("x", 5<<10) + `"}`},
	} {
		path := "/v1/contacts/" + r.create(t, `{"phone_e164":"`+fresh()+`","metadata":`+row.first+`}`)
		r.checkResponse(t, r.customer(t, http.MethodPatch, path, `{"metadata":`+row.fits+`}`), http.StatusOK, "")
		before := r.customer(t, http.MethodGet, path, "")
		r.checkResponse(t, r.customer(t, http.MethodPatch, path, `{"name":"not kept","metadata":`+row.refused+`}`),
			http.StatusUnprocessableEntity, "validation_error")
		if after := r.customer(t, http.MethodGet, path, ""); after.raw != before.raw {
			t.Errorf("%s: the refused request changed the contact", row.name)
		}
	}
}

func fresh() string {
	id := uuid.New()
	return fmt.Sprintf("+1500%03d%04d", int(id[0]), int(id[1])<<4|int(id[2])>>4)
}

func TestLimits_ApplyToVariables(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.allowAllHours(t)
	ask := func(number, variables string) *compliancev1.PreCheckResponse {
		got, err := r.preCheck("calls").PreCheck(t.Context(), connect.NewRequest(&compliancev1.PreCheckRequest{
			CallRequestId: uuid.Must(uuid.NewV7()).String(), WorkspaceId: r.workspace.String(), ToE164: number,
			VariablesJson: []byte(variables)}))
		if err != nil {
			t.Fatalf("PreCheck with %d bytes of variables: %v", len(variables), err)
		}
		return got.Msg
	}
	for name, row := range map[string]struct{ at, one string }{
		"keys":  {at: keys(100), one: keys(101)},
		"depth": {at: levels(5), one: levels(6)},
		"bytes": {at: bytes64k(0), one: bytes64k(1)},
		"variables of 192 KiB": {at: `{"a":1` + strings.Repeat(" ", 192<<10-8) + `}`,
			one: `{"a":"` + strings.Repeat("x", 192<<10-9) + `"}`},
	} {
		number := fresh()
		refused := ask(number, row.one).GetRefused()
		if refused.GetCode() != "validation_error" {
			t.Errorf(`%s: refused.GetCode() = %q, want "validation_error"`, name, refused.GetCode())
		} else if !strings.HasPrefix(refused.GetMessage(), "variables ") {
			t.Errorf(`%s: refused.GetMessage() = %q, want it to begin with "variables "`, name, refused.GetMessage())
		}
		if ask(number, row.at).GetAllowed() == nil {
			t.Errorf("%s: the largest allowed value was refused", name)
		}
	}
}

// A 404 takes precedence over errors in the body (docs/reference/api/README.md#order-of-checks).
func TestContacts_UnknownIDIs404EvenWithAnInvalidBody(t *testing.T) {
	t.Parallel()
	r := start(t)
	for _, body := range []string{"", "{", "[]", `{"name":7}`, `{"metadata":null}`, "{}"} {
		r.checkResponse(t, r.customer(t, http.MethodPatch, "/v1/contacts/"+uuid.NewString(), body), http.StatusNotFound,
			"not_found")
		r.checkResponse(t, r.customer(t, http.MethodPatch, "/v1/contacts/seven", body), http.StatusNotFound, "not_found")
	}
}

// The test sends the number in every form in which the gateway and HTTP routers pass it on.
func TestOptOuts_ParseTheNumberInThePath(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.checkResponse(t, r.customer(t, http.MethodPost, "/v1/opt-outs", `{"phone_e164":"+14155550123"}`), http.StatusOK, "")
	for _, row := range []struct {
		name, path string
		status     int
		code       string
	}{
		{name: "a raw plus", path: "+14155550123", status: 200},
		{name: "an encoded plus", path: "%2B14155550123", status: 200},
		{name: "an encoded plus in small letters, and a digit", path: "%2b1415555012%33", status: 200},
		{name: "a number that is not opted out", path: "+14155550124", status: 404, code: "not_found"},
		{name: "no plus", path: "14155550123", status: 422, code: "invalid_phone"},
		{name: "a space for the plus", path: "%2014155550123", status: 422, code: "invalid_phone"},
		{name: "a plus that is encoded twice", path: "%252B14155550123", status: 422, code: "invalid_phone"},
		{name: "a line feed after the number", path: "+14155550123%0A", status: 422, code: "invalid_phone"},
		{name: "a NUL after the number", path: "+14155550123%00", status: 422, code: "invalid_phone"},
		{name: "bytes that are not UTF-8", path: "+1415555%ff", status: 422, code: "invalid_phone"},
		{name: "digits of another script", path: "+%D9%A1%D9%A4%D9%A1%D9%A5%D9%A5%D9%A5%D9%A5", status: 422,
			code: "invalid_phone"},
		{name: "a slash inside", path: "+1415555%2F0123", status: 422, code: "invalid_phone"},
		{name: "sixteen digits", path: "+1415555012345678", status: 422, code: "invalid_phone"},
		{name: "a leading zero", path: "+04155550123", status: 422, code: "invalid_phone"},
		{name: "five thousand digits", path: "+1" + strings.Repeat("4", 5000), status: 422, code: "invalid_phone"},
	} {
		got := r.customer(t, http.MethodGet, "/v1/opt-outs/"+row.path, "")
		if got.status != row.status {
			t.Errorf("%s: got.status = %v, want %v; got.raw = %s", row.name, got.status, row.status, got.raw)
		} else if got.code() != row.code {
			t.Errorf("%s: got.code() = %q, want %q; got.raw = %s", row.name, got.code(), row.code, got.raw)
		}
		if row.status == 200 {
			continue
		}
		if got = r.customer(t, http.MethodDelete, "/v1/opt-outs/"+row.path, ""); got.status != row.status {
			t.Errorf("DELETE with %s: got.status = %v, want %v; got.raw = %s", row.name, got.status, row.status, got.raw)
		} else if got.code() != row.code {
			t.Errorf("DELETE with %s: got.code() = %q, want %q; got.raw = %s", row.name, got.code(), row.code, got.raw)
		}
	}
}
