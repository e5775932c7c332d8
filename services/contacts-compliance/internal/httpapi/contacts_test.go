package httpapi_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit"
)

func (r *fixture) create(t testing.TB, body string) string {
	t.Helper()
	got := r.customer(t, http.MethodPost, "/v1/contacts", body)
	if got.status != http.StatusCreated {
		t.Fatalf("create %s: %d %s", body, got.status, got.raw)
	}
	id, _ := got.body["id"].(string)
	return id
}

func TestContacts_HaveExactlyTheDocumentedFields(t *testing.T) {
	t.Parallel()
	r := start(t)
	got := r.customer(t, http.MethodPost, "/v1/contacts",
		`{"phone_e164":"+15005550001","name":"Ann <&> Bob","metadata":{"k":1,"gone":null},"color":"ignored"}`)
	r.checkResponse(t, got, http.StatusCreated, "")
	want := map[string]bool{}
	for _, name := range strings.Fields(
		"id phone_e164 name email external_id variables metadata consent_status dnd_status created_at updated_at") {
		want[name] = true
	}
	if !maps.Equal(keysOf(got.body), want) {
		t.Errorf("fields = %v", keysOf(got.body))
	}
	testkit.Members(t, "contact", got.body, map[string]any{
		"name": "Ann <&> Bob", "email": nil, "dnd_status": "unknown", "consent_status": "unknown",
	})
	if got := fmt.Sprint(got.body["metadata"]); got != "map[k:1]" {
		t.Errorf("contact: metadata = %v, want map[k:1]", got)
	}
	if got := fmt.Sprint(got.body["variables"]); got != "map[]" {
		t.Errorf("contact: variables = %v, want map[]", got)
	}
	if at, _ := got.body["created_at"].(string); !strings.HasSuffix(at, "Z") {
		t.Errorf(`at = %q, want it to end with "Z"`, at)
	} else if got.body["updated_at"] != got.body["created_at"] {
		t.Errorf(`got.body["updated_at"] = %v, want %v`, got.body["updated_at"], got.body["created_at"])
	}
	again := r.customer(t, http.MethodGet, "/v1/contacts/"+got.body["id"].(string), "")
	if again.status != http.StatusOK {
		t.Errorf("again.status = %v, want %v", again.status, http.StatusOK)
	} else if again.raw != got.raw {
		t.Errorf("again.raw = %v, want %v", again.raw, got.raw)
	}
}

func TestContacts_DuplicateNumberReturnsTheExistingID(t *testing.T) {
	t.Parallel()
	r := start(t)
	id := r.create(t, `{"phone_e164":"+15005550001"}`)
	got := r.customer(t, http.MethodPost, "/v1/contacts", `{"phone_e164":"+15005550001","name":"other"}`)
	r.checkResponse(t, got, http.StatusConflict, "contact_exists")
	inner, _ := got.body["error"].(map[string]any)
	if got.body["existing_id"] != id {
		t.Errorf(`existing_id: got.body["existing_id"] = %v, want %v; got.raw = %s`, got.body["existing_id"], id, got.raw)
	} else if inner["existing_id"] != id {
		t.Errorf(`existing_id: inner["existing_id"] = %v, want %v; got.raw = %s`, inner["existing_id"], id, got.raw)
	}
}

func TestContacts_ErrorNamesTheInvalidField(t *testing.T) {
	t.Parallel()
	r := start(t)
	id := r.create(t, `{"phone_e164":"+15005550001"}`)
	big := `{"a":"` + strings.Repeat("x", 64<<10) + `"}`
	tests := []struct{ name, method, path, body, field string }{
		{name: "no number", method: "POST", path: "/v1/contacts", body: `{}`, field: "phone_e164"},
		{name: "a null number", method: "POST", path: "/v1/contacts", body: `{"phone_e164":null}`, field: "phone_e164"},
		{name: "a number that is no string", method: "POST", path: "/v1/contacts", body: `{"phone_e164":15005550001}`,
			field: "phone_e164"},
		{name: "a malformed number", method: "POST", path: "/v1/contacts", body: `{"phone_e164":"15005550001"}`,
			field: "phone_e164"},
		{name: "a name above the limit", method: "POST", path: "/v1/contacts",
			body: `{"phone_e164":"+15005550002","name":"` + strings.Repeat("é", 201) + `"}`, field: "name"},
		{name: "a name that is no string", method: "POST", path: "/v1/contacts",
			body: `{"phone_e164":"+15005550002","name":7}`, field: "name"},
		{name: "metadata that is no object", method: "POST", path: "/v1/contacts",
			body: `{"phone_e164":"+15005550002","metadata":[1]}`, field: "metadata"},
		{name: "metadata too large", method: "POST", path: "/v1/contacts",
			body: `{"phone_e164":"+15005550002","metadata":` + big + `}`, field: "metadata"},
		{name: "metadata too deep", method: "PATCH", path: "/v1/contacts/" + id,
			body: `{"metadata":{"a":{"b":{"c":{"d":{"e":{}}}}}}}`, field: "metadata"},
		{name: "null metadata", method: "PATCH", path: "/v1/contacts/" + id, body: `{"metadata":null}`, field: "metadata"},
		{name: "an unknown time zone", method: "PATCH", path: "/v1/contacts/" + id,
			body: `{"metadata":{"time_zone":"Mars/Olympus"}}`, field: "metadata.time_zone"},
		{name: "a time zone that is no string", method: "POST", path: "/v1/contacts",
			body: `{"phone_e164":"+15005550002","metadata":{"time_zone":7}}`, field: "metadata.time_zone"},
		{name: "NUL in the name", method: "PATCH", path: "/v1/contacts/" + id, body: `{"name":"a\u0000b"}`, field: "name"},
		{name: "not JSON", method: "POST", path: "/v1/contacts", body: `{`},
		{name: "an array", method: "POST", path: "/v1/contacts", body: `[]`},
		{name: "an unknown dnd_status in the query",
			method: "GET", path: "/v1/contacts?dnd_status=maybe", field: "dnd_status"},
		{name: "an unknown consent_status in the query", method: "GET", path: "/v1/contacts?consent_status=dnd",
			field: "consent_status"},
		{name: "a malformed number in the query", method: "GET", path: "/v1/contacts?phone=15005550001", field: "phone"},
		{name: "an unknown cursor", method: "GET", path: "/v1/contacts?starting_after=" + uuid.NewString(),
			field: "starting_after"},
		{name: "an e-mail address without a domain", method: "POST", path: "/v1/contacts",
			body: `{"phone_e164":"+15005550002","email":"ada"}`, field: "email"},
		{name: "an e-mail address with a name", method: "PATCH", path: "/v1/contacts/" + id,
			body: `{"email":"Ada <ada@example.com>"}`, field: "email"},
		{name: "an e-mail address above the limit", method: "PATCH", path: "/v1/contacts/" + id,
			body: `{"email":"` + strings.Repeat("x", 250) + `@a.de"}`, field: "email"},
		{name: "an empty external_id", method: "PATCH", path: "/v1/contacts/" + id, body: `{"external_id":""}`,
			field: "external_id"},
		{name: "an external_id above the limit", method: "POST", path: "/v1/contacts",
			body: `{"phone_e164":"+15005550002","external_id":"` + strings.Repeat("x", 256) + `"}`, field: "external_id"},
		{name: "a consent that is no object", method: "POST", path: "/v1/contacts",
			body: `{"phone_e164":"+15005550002","consent":"consented"}`, field: "consent "},
		{name: "a null consent", method: "PATCH", path: "/v1/contacts/" + id, body: `{"consent":null}`, field: "consent "},
		{name: "an unknown consent status", method: "PATCH", path: "/v1/contacts/" + id,
			body: `{"consent":{"status":"unknown","source":"form"}}`, field: "consent.status"},
		{name: "a consent without a source", method: "POST", path: "/v1/contacts",
			body: `{"phone_e164":"+15005550002","consent":{"status":"consented"}}`, field: "consent.source"},
		{name: "an evidence that is a number", method: "PATCH", path: "/v1/contacts/" + id,
			body: `{"consent":{"status":"consented","source":"form","evidence":7}}`, field: "consent.evidence"},
		{name: "NUL in the e-mail filter", method: "GET", path: "/v1/contacts?email=%00", field: "email"},
		{name: "NUL in the query", method: "GET", path: "/v1/contacts?q=%00", field: "q"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := r.customer(t, tt.method, tt.path, tt.body)
			r.checkResponse(t, got, http.StatusUnprocessableEntity, "validation_error")
			if !strings.HasPrefix(got.message(), tt.field) {
				t.Errorf("message = %q, want it to name %s", got.message(), tt.field)
			}
		})
	}
}

func TestContacts_PatchMergesMetadataAndClearsTheName(t *testing.T) {
	t.Parallel()
	r := start(t)
	path := "/v1/contacts/" +
		r.create(t, `{"phone_e164":"+15005550001","name":"Ann","metadata":{"keep":{"x":1},"gone":1}}`)
	steps := []struct{ body, name, metadata string }{
		{body: `{}`, name: "Ann", metadata: "map[gone:1 keep:map[x:1]]"},
		{body: `{"metadata":{"gone":null,"time_zone":"Europe/Berlin"}}`, name: "Ann",
			metadata: "map[keep:map[x:1] time_zone:Europe/Berlin]"},
		{body: `{"name":"Eve","metadata":{"keep":{"y":2}}}`, name: "Eve",
			metadata: "map[keep:map[y:2] time_zone:Europe/Berlin]"},
		{body: `{"name":null,"metadata":{"time_zone":null}}`, name: "<nil>", metadata: "map[keep:map[y:2]]"},
		{body: `{"name":""}`, metadata: "map[keep:map[y:2]]"},
	}
	for _, step := range steps {
		got := r.customer(t, http.MethodPatch, path, step.body)
		if got.status != http.StatusOK {
			t.Errorf("after %s: status = %v, want %v", step.body, got.status, http.StatusOK)
		}
		if got := fmt.Sprint(got.body["name"]); got != step.name {
			t.Errorf("after %s: name = %v, want %v", step.body, got, step.name)
		}
		if got := fmt.Sprint(got.body["metadata"]); got != step.metadata {
			t.Errorf("after %s: metadata = %v, want %v", step.body, got, step.metadata)
		}
	}
	r.checkResponse(t, r.customer(t, http.MethodPatch, "/v1/contacts/"+uuid.NewString(), `{}`), http.StatusNotFound,
		"not_found")
	r.checkResponse(t, r.customer(t, http.MethodGet, "/v1/contacts/seven", ``), http.StatusNotFound, "not_found")
}

func TestContacts_ListReturnsFilteredPages(t *testing.T) {
	t.Parallel()
	r := start(t)
	names := []string{"100% Élan", "1000 Elan", "under_score", "underXscore", ""}
	ids := make([]string, len(names))
	for i, name := range names {
		ids[i] = r.create(t, fmt.Sprintf(`{"phone_e164":"+1500555000%d","name":%q}`, i, name))
	}
	r.checkResponse(t, r.customer(t, http.MethodPost, "/v1/opt-outs", `{"phone_e164":"+15005550002"}`), http.StatusOK, "")
	listed := func(query string) string {
		t.Helper()
		got := r.customer(t, http.MethodGet, "/v1/contacts"+query, "")
		if got.status != http.StatusOK {
			t.Errorf("%s: %d %s", query, got.status, got.raw)
			return ""
		}
		found := ""
		for _, item := range got.body["data"].([]any) {
			for i, id := range ids {
				if item.(map[string]any)["id"] == id {
					found += fmt.Sprint(i)
				}
			}
		}
		return fmt.Sprint(found, " ", got.body["has_more"])
	}
	for query, want := range map[string]string{
		"":                                       "43210 false",
		"?limit=2":                               "43 true",
		"?limit=2&starting_after=" + ids[3]:      "21 true",
		"?limit=2&starting_after=" + ids[1]:      "0 false",
		"?phone=%2B15005550001":                  "1 false",
		"?phone=+15005550001":                    "1 false",
		"?phone=+15005559999":                    " false",
		"?q=100%25":                              "0 false",
		"?q=r_s":                                 "2 false",
		"?q=éLAN":                                "0 false",
		"?q=UNDER":                               "32 false",
		"?q=":                                    "43210 false",
		"?dnd_status=dnd":                        "2 false",
		"?dnd_status=unknown&q=under":            "3 false",
		"?consent_status=consented":              " false",
		"?consent_status=unknown&dnd_status=dnd": "2 false",
		"?unknown=1&limit=100&phone=+15005550004": "4 false",
	} {
		if got := listed(query); got != want {
			t.Errorf("%s lists %q, want %q", query, got, want)
		}
	}
}

func TestContacts_AreInvisibleToOtherWorkspaces(t *testing.T) {
	t.Parallel()
	r := start(t)
	id := r.create(t, `{"phone_e164":"+15005550001"}`)
	otherCaller := serviceauth.Caller{WorkspaceID: uuid.Must(uuid.NewV7()), RequestID: uuid.Must(uuid.NewV7()),
		Access: serviceauth.Write}
	for _, path := range []string{"/v1/contacts/" + id, "/v1/opt-outs/+15005550001"} {
		r.checkResponse(t, r.send(t, otherCaller, http.MethodGet, path, ""), http.StatusNotFound, "not_found")
	}
	r.checkResponse(t, r.send(t, otherCaller, http.MethodPatch, "/v1/contacts/"+id, `{"name":"x"}`), http.StatusNotFound,
		"not_found")
	r.checkResponse(t, r.send(t, otherCaller, http.MethodDelete, "/v1/opt-outs/+15005550001", ""), http.StatusNotFound,
		"not_found")
	r.checkResponse(t, r.send(t, otherCaller, http.MethodGet, "/v1/contacts?starting_after="+id, ""),
		http.StatusUnprocessableEntity, "validation_error")
	if got := r.send(t, otherCaller, http.MethodGet, "/v1/contacts", ""); len(got.body["data"].([]any)) != 0 {
		t.Errorf("list of another workspace = %s, want none", got.raw)
	}
	if got := r.send(t, otherCaller, http.MethodPost, "/v1/contacts",
		`{"phone_e164":"+15005550001"}`); got.status != http.StatusCreated {
		t.Errorf("create of the number in another workspace = %d %s, want 201", got.status, got.raw)
	}
}

// Each change of consent must store one consent record with the source and the evidence of the
// request, even if the status stays the same. A refused request must store none.
func TestContacts_ChangeOfConsentStoresARecord(t *testing.T) {
	t.Parallel()
	r := start(t)
	got := r.customer(t, http.MethodPost, "/v1/contacts", `{"phone_e164":"+15005550001","email":"ada@example.com",
		"external_id":"c-1","consent":{"status":"consented","source":"web form","evidence":{"ip":"192.0.2.7"}}}`)
	r.checkResponse(t, got, http.StatusCreated, "")
	testkit.Members(t, "created", got.body, map[string]any{
		"email": "ada@example.com", "external_id": "c-1", "consent_status": "consented", "dnd_status": "unknown",
	})
	path := "/v1/contacts/" + fmt.Sprint(got.body["id"])
	if read := r.customer(t, http.MethodGet, path, ""); read.raw != got.raw {
		t.Errorf("read = %s, want %s", read.raw, got.raw)
	}
	r.checkResponse(t, r.customer(t, http.MethodPost, "/v1/contacts",
		`{"phone_e164":"+15005550001","consent":{"status":"withdrawn","source":"letter"}}`), http.StatusConflict,
		"contact_exists")
	r.checkResponse(t, r.customer(t, http.MethodPatch, path,
		`{"metadata":{"time_zone":"Mars/Olympus"},"consent":{"status":"withdrawn","source":"letter"}}`),
		http.StatusUnprocessableEntity, "validation_error")
	again := r.customer(t, http.MethodPatch, path, `{"consent":{"status":"consented","source":"phone"}}`)
	testkit.Members(t, "consented again", again.body, map[string]any{
		"email": "ada@example.com", "external_id": "c-1", "consent_status": "consented",
	})
	last := r.customer(
		t,
		http.MethodPatch,
		path,
		`{"email":null,"external_id":null,"name":"Ada",
			"consent":{"status":"withdrawn","source":"letter","evidence":"scan 7"}}`,
	)
	testkit.Members(t, "withdrawn", last.body, map[string]any{
		"email": nil, "external_id": nil, "name": "Ada", "consent_status": "withdrawn",
	})
	if read := r.customer(t, http.MethodGet, path, ""); read.raw != last.raw {
		t.Errorf("read = %s, want %s", read.raw, last.raw)
	}
	records := r.operator(t, http.MethodGet, "/admin/v1/workspaces/%s/consent-records?phone=+15005550001", "")
	data, _ := records.body["data"].([]any)
	var lines []string
	for _, item := range data {
		rec, _ := item.(map[string]any)
		actor, _, _ := strings.Cut(fmt.Sprint(rec["actor"]), ":")
		lines = append(lines, fmt.Sprintf("%v %v %v %v %v→%v", rec["kind"], rec["source"], actor, rec["evidence"],
			rec["before"], rec["after"]))
	}
	want := []string{ // newest first
		"consent_withdrawn letter request scan 7 consented→withdrawn",
		"consent_granted phone request <nil> consented→consented",
		"consent_granted web form request map[ip:192.0.2.7] unknown→consented",
	}
	if strings.Join(lines, "\n") != strings.Join(want, "\n") {
		t.Errorf("records =\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}
