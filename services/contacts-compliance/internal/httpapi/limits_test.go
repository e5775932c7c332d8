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

// letters returns n characters of two bytes each. The limits count characters.
func letters(n int) string { return strings.Repeat("é", n) }

// keys returns an object of n members.
func keys(n int) string {
	members := make([]string, n)
	for i := range members {
		members[i] = fmt.Sprintf(`"k%d":%d`, i, i)
	}
	return "{" + strings.Join(members, ",") + "}"
}

// levels returns an object that is nested n levels deep. The object itself is level 1.
func levels(n int) string { return strings.Repeat(`{"a":`, n-1) + "{}" + strings.Repeat("}", n-1) }

// bytes64k returns a compact object of 64 KiB plus more bytes.
func bytes64k(more int) string {
	const frame = len(`{"a":""}`)
	return `{"a":"` + strings.Repeat("x", 64<<10-frame+more) + `"}`
}

func TestLimits_LargestAllowedAndOneMore(t *testing.T) {
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
		return r.operator(t, http.MethodPut, "/admin/v1/workspaces/%s/contacts/+15005559999/consent", `{"status":"consented",`+members+"}")
	}
	quoted := func(text string) string { return `"` + text + `"` }
	for _, row := range []struct {
		name           string
		send           func(string) response
		field, at, one string
	}{
		{"the name of a new contact", post, "name", quoted(letters(200)), quoted(letters(201))},
		{"the name of a contact", patch, "name", quoted(letters(200)), quoted(letters(201))},
		{"the reason of an opt-out", optOut, "reason", quoted(letters(500)), quoted(letters(501))},
		{"the source of a consent", consent, "source", quoted(letters(200)), quoted(letters(201))},
		{"evidence that is text", consent, "evidence", `"` + letters(2000) + `","source":"form"`, `"` + letters(2001) + `","source":"form"`},
		{"the keys of evidence", consent, "evidence", keys(100) + `,"source":"form"`, keys(101) + `,"source":"form"`},
		{"the keys of new metadata", post, "metadata", keys(100), keys(101)},
		{"the depth of new metadata", post, "metadata", levels(5), levels(6)},
		{"the size of new metadata", post, "metadata", bytes64k(0), bytes64k(1)},
		{"lists are levels too", post, "metadata", `{"a":[[[[1]]]]}`, `{"a":[[[[[]]]]]}`},
		{"the depth of metadata", patch, "metadata", levels(5), levels(6)},
	} {
		if got := row.send(`"` + row.field + `":` + row.at); got.status >= 300 {
			t.Errorf("%s at the limit = %d %.200s", row.name, got.status, got.raw)
		}
		got := row.send(`"` + row.field + `":` + row.one)
		r.checkResponse(t, got, http.StatusUnprocessableEntity, "validation_error")
		if !strings.HasPrefix(got.message(), row.field+" ") {
			t.Errorf("%s: message %q does not name %s", row.name, got.message(), row.field)
		}
	}
}

func TestLimits_ApplyToMergedMetadata(t *testing.T) {
	t.Parallel()
	r := start(t)
	for _, row := range []struct{ name, first, fits, refused string }{
		{"keys", keys(99), `{"one more":1}`, `{"too many":1}`},
		{"a key for a key", keys(100), `{"k0":null,"other":1}`, `{"another":1}`},
		{"bytes", `{"a":"` + strings.Repeat("x", 40<<10) + `"}`, `{"b":"` + strings.Repeat("x", 20<<10) + `"}`, `{"c":"` + strings.Repeat("x", 5<<10) + `"}`},
	} {
		path := "/v1/contacts/" + r.create(t, `{"phone_e164":"`+fresh()+`","metadata":`+row.first+`}`)
		r.checkResponse(t, r.customer(t, http.MethodPatch, path, `{"metadata":`+row.fits+`}`), http.StatusOK, "")
		before := r.customer(t, http.MethodGet, path, "")
		r.checkResponse(t, r.customer(t, http.MethodPatch, path, `{"name":"not kept","metadata":`+row.refused+`}`), http.StatusUnprocessableEntity, "validation_error")
		if after := r.customer(t, http.MethodGet, path, ""); after.raw != before.raw {
			t.Errorf("%s: the refused request changed the contact", row.name)
		}
	}
}

// fresh returns an unused number.
func fresh() string {
	id := uuid.New()
	return fmt.Sprintf("+1500%03d%04d", int(id[0]), int(id[1])<<4|int(id[2])>>4)
}

func TestLimits_OfVariables(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.allowAllHours(t)
	ask := func(number, variables string) *compliancev1.PreCheckResponse {
		got, err := r.preCheck("calls").PreCheck(t.Context(), connect.NewRequest(&compliancev1.PreCheckRequest{
			CallRequestId: uuid.Must(uuid.NewV7()).String(), WorkspaceId: r.workspace.String(), ToE164: number, VariablesJson: []byte(variables)}))
		if err != nil {
			t.Fatalf("PreCheck with %d bytes of variables: %v", len(variables), err)
		}
		return got.Msg
	}
	for name, row := range map[string]struct{ at, one string }{
		"keys":                    {keys(100), keys(101)},
		"depth":                   {levels(5), levels(6)},
		"bytes":                   {bytes64k(0), bytes64k(1)},
		"bytes of most of a body": {`{"a":1` + strings.Repeat(" ", 192<<10-8) + `}`, `{"a":"` + strings.Repeat("x", 192<<10-9) + `"}`},
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
		r.checkResponse(t, r.customer(t, http.MethodPatch, "/v1/contacts/"+uuid.NewString(), body), http.StatusNotFound, "not_found")
		r.checkResponse(t, r.customer(t, http.MethodPatch, "/v1/contacts/seven", body), http.StatusNotFound, "not_found")
	}
}

// The test sends the number in the forms in which the gateway and routers pass it on.
func TestOptOuts_NumbersInAPath(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.checkResponse(t, r.customer(t, http.MethodPost, "/v1/opt-outs", `{"phone_e164":"+14155550123"}`), http.StatusOK, "")
	for _, row := range []struct {
		name, path string
		status     int
		code       string
	}{
		{"a raw plus", "+14155550123", 200, ""},
		{"an encoded plus", "%2B14155550123", 200, ""},
		{"an encoded plus in small letters, and a digit", "%2b1415555012%33", 200, ""},
		{"a number never seen", "+14155550124", 404, "not_found"},
		{"no plus", "14155550123", 422, "invalid_phone"},
		{"a space for the plus", "%2014155550123", 422, "invalid_phone"},
		{"encoded twice", "%252B14155550123", 422, "invalid_phone"},
		{"a line end behind it", "+14155550123%0A", 422, "invalid_phone"},
		{"a NUL behind it", "+14155550123%00", 422, "invalid_phone"},
		{"bytes that are no text", "+1415555%ff", 422, "invalid_phone"},
		{"digits of another script", "+%D9%A1%D9%A4%D9%A1%D9%A5%D9%A5%D9%A5%D9%A5", 422, "invalid_phone"},
		{"a slash inside", "+1415555%2F0123", 422, "invalid_phone"},
		{"sixteen digits", "+1415555012345678", 422, "invalid_phone"},
		{"a leading zero", "+04155550123", 422, "invalid_phone"},
		{"five thousand digits", "+1" + strings.Repeat("4", 5000), 422, "invalid_phone"},
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
