package contract

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/test/kit/sharedstack"
)

func TestContacts_CreateValidatesEachField(t *testing.T) {
	w := workspace(t)
	type row struct {
		name  string
		body  any
		field string // the field that the error names, or "" if the response is 201
	}
	rows := []row{
		{"only a phone number", set{"phone_e164": number(1)}, ""},
		{"null means that the field is absent", set{"phone_e164": number(1), "name": nil, "metadata": nil}, ""},
		{"unknown fields are ignored", set{"phone_e164": number(1), "id": "x", "dnd_status": "dnd", "consent_status": 7}, ""},
		{"a name of 200 characters", set{"phone_e164": number(1), "name": strings.Repeat("ü", 200)}, ""},
		{"a name of 201 characters", set{"phone_e164": number(1), "name": strings.Repeat("x", 201)}, "name"},
		{"a name that is a number", set{"phone_e164": number(1), "name": 7}, "name"},
		{"a NUL byte", set{"phone_e164": number(1), "name": "a\x00"}, "name"},
		{"no phone number", set{"name": "Ada"}, "phone_e164"},
		{"an e-mail address without a domain", set{"phone_e164": number(1), "email": "ada"}, "email"},
		{"an empty external_id", set{"phone_e164": number(1), "external_id": ""}, "external_id"},
		{
			"an external_id of 256 characters",
			set{"phone_e164": number(1), "external_id": strings.Repeat("x", 256)},
			"external_id",
		},
		{
			"null as email, external_id and consent",
			set{"phone_e164": number(1), "email": nil, "external_id": nil, "consent": nil},
			"",
		},
		{"a consent of the wrong type", set{"phone_e164": number(1), "consent": "consented"}, "consent"},
		{
			"an unknown consent status",
			set{"phone_e164": number(1), "consent": set{"status": "unknown", "source": "form"}},
			"consent.status",
		},
		{"a consent without a source", set{"phone_e164": number(1), "consent": set{"status": "consented"}}, "consent.source"},
		{
			"evidence that is a number",
			set{"phone_e164": number(1), "consent": set{"status": "consented", "source": "form", "evidence": 7}},
			"consent.evidence",
		},
		{"null as the phone number", set{"phone_e164": nil}, "phone_e164"},
		{"a phone number of the wrong type", set{"phone_e164": 14155550101}, "phone_e164"},
		{"an invalid phone number", set{"phone_e164": "14155550101"}, "phone_e164"},
		{"a valid time zone", set{"phone_e164": number(1), "metadata": set{"time_zone": "Europe/Berlin"}}, ""},
		{"an unknown time zone", set{"phone_e164": number(1), "metadata": set{"time_zone": "Mars/Olympus"}}, "time_zone"},
		{"a time zone of the wrong type", set{"phone_e164": number(1), "metadata": set{"time_zone": 2}}, "time_zone"},
	}
	for _, d := range documents() {
		r := row{"metadata: " + d.name, set{"phone_e164": number(1), "metadata": d.value}, ""}
		if !d.ok {
			r.field = "metadata"
		}
		rows = append(rows, r)
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if row.field != "" {
				if got := w.write.refused(t, 422, "validation_error", "POST", "/v1/contacts", row.body); !strings.Contains(got.body, row.field) {
					t.Errorf("%s does not name %s", got.body, row.field)
				}
				return
			}
			got := w.write.want(t, 201, "POST", "/v1/contacts", row.body)
			sharedstack.Equal(t, "dnd_status", got.text("dnd_status"), "unknown")
			sharedstack.Equal(t, "consent_status", got.text("consent_status"), "unknown")
			sharedstack.Equal(t, "email", got.text("email"), "")
			sharedstack.Equal(t, "external_id", got.text("external_id"), "")
			mustBeBornWithItsID(t, got.text("id"), got.text("created_at"))
			if read := w.read.want(t, 200, "GET", "/v1/contacts/"+got.text("id"), nil); read.body != got.body {
				t.Errorf("read %s, created %s", read.body, got.body)
			}
		})
	}
}

func TestContacts_SecondContactWithANumberIsRefused(t *testing.T) {
	w := workspace(t)
	to := number(1)
	first := w.write.want(t, 201, "POST", "/v1/contacts", set{"phone_e164": to, "name": "Ada"})
	got := w.write.refused(t, 409, "contact_exists", "POST", "/v1/contacts", set{"phone_e164": to, "name": "Bob"})
	inside, _ := got.members()["error"].(map[string]any)
	if got.text("existing_id") != first.text("id") {
		t.Errorf(`got.text("existing_id") = %q, want %q; got.body = %s`,
			got.text("existing_id"), first.text("id"), got.body)
	} else if inside["existing_id"] != first.text("id") {
		t.Errorf(`inside["existing_id"] = %q, want %q; got.body = %s`, inside["existing_id"], first.text("id"), got.body)
	}
	optedOut := number(1)
	w.write.want(t, 200, "POST", "/v1/opt-outs", set{"phone_e164": optedOut})
	w.write.refused(t, 409, "contact_exists", "POST", "/v1/contacts", set{"phone_e164": optedOut})
}

func TestContacts_PatchMergesMetadata(t *testing.T) {
	w := workspace(t)
	made := w.write.want(t, 201, "POST", "/v1/contacts", set{"phone_e164": number(1), "name": "Ada", "metadata": set{"a": 1, "b": set{"x": 1}, "c": "y"}})
	path := "/v1/contacts/" + made.text("id")
	shown := func(a answer) string {
		metadata, _ := json.Marshal(a.members()["metadata"])
		return fmt.Sprint(a.members()["name"], " ", string(metadata))
	}
	for _, row := range []struct{ name, body, want string }{
		{"an empty object changes nothing", `{}`, `Ada {"a":1,"b":{"x":1},"c":"y"}`},
		{"unknown fields are ignored", `{"phone_e164":"+14155550101","dnd_status":"dnd","variables":{"z":1}}`, `Ada {"a":1,"b":{"x":1},"c":"y"}`},
		{"only the name", `{"name":"Ada King"}`, `Ada King {"a":1,"b":{"x":1},"c":"y"}`},
		{"metadata is merged only at the top level", `{"metadata":{"b":{"z":2},"d":[1]}}`,
			`Ada King {"a":1,"b":{"z":2},"c":"y","d":[1]}`},
		{"null removes a key", `{"metadata":{"a":null,"never there":null}}`, `Ada King {"b":{"z":2},"c":"y","d":[1]}`},
		{"null below the top level is kept", `{"metadata":{"b":{"z":null}}}`, `Ada King {"b":{"z":null},"c":"y","d":[1]}`},
		{"name null clears the name", `{"name":null}`, `<nil> {"b":{"z":null},"c":"y","d":[1]}`},
	} {
		before := w.read.want(t, 200, "GET", path, nil)
		got := w.write.want(t, 200, "PATCH", path, row.body)
		sharedstack.Equal(t, row.name+": shown(got)", shown(got), row.want)
		sharedstack.Equal(t, row.name+": phone_e164", got.text("phone_e164"), made.text("phone_e164"))
		sharedstack.Equal(t, row.name+": dnd_status", got.text("dnd_status"), "unknown")
		if got.text("created_at") != made.text("created_at") {
			t.Errorf(`%s: got.text("created_at") = %q, want %q`, row.name, got.text("created_at"), made.text("created_at"))
		} else if instant(t, got.text("updated_at")).Before(instant(t, before.text("updated_at"))) {
			t.Errorf(`%s: instant(t, got.text("updated_at")).Before = true, want false`, row.name)
		}
	}
	for body, field := range map[string]string{
		`{"name":7}`: "name", `{"metadata":[]}`: "metadata", `{"metadata":null}`: "metadata", `{"metadata":{"time_zone":"x"}}`: "time_zone", `{"name":"` + strings.Repeat("x", 201) + `"}`: "name",
		`[]`: "", `{`: "", ``: "", `{"name":"a"}x`: "",
	} {
		if got := w.write.refused(t, 422, "validation_error", "PATCH", path, body); !strings.Contains(got.body, field) {
			t.Errorf("PATCH %s = %s, want %s named", body, got.body, field)
		}
	}
	w.write.want(t, 200, "PATCH", path, set{"metadata": wide(97)})
	// The contact would have 101 keys after the merge. The maximum is 100.
	w.write.refused(t, 422, "validation_error", "PATCH", path, set{"metadata": set{"one": 1}})
	w.write.want(t, 200, "PATCH", path, set{"metadata": set{"one": 1, "b": nil}})
}

// Each consent that a client sends must be a consent record of the operator API, and a withdrawal
// must refuse the next call. Erasure must delete email and external_id.
func TestContacts_ConsentIsRecordedAndErasureDeletesTheFields(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "100")
	to := number(1)
	made := w.write.want(
		t,
		201,
		"POST",
		"/v1/contacts",
		set{"phone_e164": to, "email": "ada@example.com", "external_id": "c-1",
			"consent": set{"status": "consented", "source": "web form", "evidence": set{"ip": "192.0.2.7"}}},
	)
	sharedstack.Equal(t, "email", made.text("email"), "ada@example.com")
	sharedstack.Equal(t, "external_id", made.text("external_id"), "c-1")
	sharedstack.Equal(t, "consent_status", made.text("consent_status"), "consented")
	path := "/v1/contacts/" + made.text("id")
	changed := w.write.want(
		t,
		200,
		"PATCH",
		path,
		set{"email": nil, "consent": set{"status": "withdrawn", "source": "letter", "evidence": "scan 7"}},
	)
	sharedstack.Equal(t, "email after the change", changed.text("email"), "")
	sharedstack.Equal(t, "consent_status after the change", changed.text("consent_status"), "withdrawn")
	sharedstack.Equal(t, "dnd_status after the change", changed.text("dnd_status"), "unknown")
	w.write.refused(t, 422, "consent_withdrawn", "POST", "/v1/calls", w.order(to))
	records := w.operator.want(t, 200, "GET", w.admin+"/consent-records?phone="+url.QueryEscape(to), nil)
	sharedstack.Equal(t, "consent records", len(records.ids()), 2)
	for _, part := range []string{
		`"source":"web form"`, `"evidence":{"ip":"192.0.2.7"}`, `"kind":"consent_withdrawn"`, `"evidence":"scan 7"`,
	} {
		sharedstack.Contains(t, "consent records", records.body, part)
	}
	w.write.refused(t, 422, "validation_error", "PATCH", path, set{"consent": nil})
	w.write.want(t, 200, "PATCH", path, set{"email": "ada@example.com"})
	w.operator.want(t, 200, "DELETE", w.admin+"/contacts/"+url.PathEscape(to), nil)
	erased := w.read.want(t, 200, "GET", path, nil)
	sharedstack.Equal(t, "email after the erasure", erased.text("email"), "")
	sharedstack.Equal(t, "external_id after the erasure", erased.text("external_id"), "")
}

func TestContacts_FilteredListContainsOnlyMatchingContacts(t *testing.T) {
	w := workspace(t)
	ids := map[string]string{}
	for _, name := range []string{"Ada Lovelace", "ada king", "100% Ada_Rows", "Bob", "Ünal"} {
		ids[name] = w.write.want(t, 201, "POST", "/v1/contacts", set{"phone_e164": number(1), "name": name}).text("id")
	}
	w.write.want(t, 200, "PATCH", "/v1/contacts/"+ids["Bob"], set{"email": "bob@example.com", "external_id": "17"})
	nameless, clean := number(1), number(1)
	w.write.want(t, 200, "POST", "/v1/opt-outs", set{"phone_e164": nameless})
	w.write.want(t, 200, "POST", "/v1/opt-outs", set{"phone_e164": clean})
	w.write.want(t, 200, "DELETE", "/v1/opt-outs/"+clean, nil)
	w.consent(t, clean, "consented")
	w.consent(t, nameless, "withdrawn")
	of := func(number string) string {
		return w.read.want(t, 200, "GET", "/v1/contacts?phone="+number, nil).ids()[0]
	}
	ids["nameless"], ids["clean"] = of(nameless), of(clean)
	for query, want := range map[string]string{
		"?q=ada":                     "100% Ada_Rows,ada king,Ada Lovelace",
		"?q=ADA":                     "100% Ada_Rows,ada king,Ada Lovelace",
		"?q=" + url.QueryEscape("%"): "100% Ada_Rows",
		"?q=_":                       "100% Ada_Rows",
		"?q=a%25":                    "",
		"?q=%C3%BCn":                 "Ünal",
		"?q=lace":                    "Ada Lovelace",
		"?q=ada+king":                "ada king",
		"?q=nobody":                  "",
		"?dnd_status=dnd":            "nameless",
		"?dnd_status=clean":          "clean",
		"?dnd_status=unknown":        "Ünal,Bob,100% Ada_Rows,ada king,Ada Lovelace",
		"?consent_status=withdrawn":  "nameless",
		"?consent_status=consented":  "clean",
		"?consent_status=consented&dnd_status=dnd":  "",
		"?consent_status=withdrawn&dnd_status=dnd":  "nameless",
		"?q=ada&dnd_status=unknown&limit=100":       "100% Ada_Rows,ada king,Ada Lovelace",
		"?q=ada&phone=" + url.QueryEscape(nameless): "",
		"?phone=" + nameless:                        "nameless",
		"?phone=" + url.QueryEscape(nameless):       "nameless",
		"?phone=" + url.QueryEscape(number(1)):      "",
		"?dnd_status=dnd&unknown=parameter":         "nameless",
		"?email=bob@example.com":                    "Bob",
		"?email=BOB@example.com":                    "",
		"?external_id=17":                           "Bob",
		"?external_id=17&email=bob@example.com&q=b": "Bob",
		"?external_id=17&consent_status=withdrawn":  "",
		"?external_id=1":                            "",
	} {
		var wanted []string
		if want != "" {
			for name := range strings.SplitSeq(want, ",") {
				wanted = append(wanted, ids[name])
			}
		}
		if got := w.read.want(t, 200, "GET", "/v1/contacts"+query, nil).ids(); strings.Join(got, ",") != strings.Join(wanted, ",") {
			t.Errorf("contacts%s = %v, want %v (%s)", query, got, wanted, want)
		}
	}
}

func TestOptOuts_CanBeCreatedReadAndDeleted(t *testing.T) {
	w := workspace(t)
	to := number(1)
	status := func(a answer) string {
		return fmt.Sprint(a.text("phone_e164"), " ", a.text("dnd_status"), " ", a.text("consent_status"))
	}
	for _, row := range []struct {
		name string
		got  answer
		want string
	}{
		{"creates the contact", w.write.want(t, 200, "POST", "/v1/opt-outs", set{"phone_e164": to, "reason": strings.Repeat("ü", 500), "source": "ignored"}), "dnd unknown"},
		{"a repeated opt-out succeeds", w.write.want(t, 200, "POST", "/v1/opt-outs", set{"phone_e164": to, "reason": nil}),
			"dnd unknown"},
		{"the opt-out can be read", w.read.want(t, 200, "GET", "/v1/opt-outs/"+to, nil), "dnd unknown"},
		{"the opt-out is deleted", w.write.want(t, 200, "DELETE", "/v1/opt-outs/"+to, nil), "clean unknown"},
		{"a repeated deletion succeeds", w.write.want(t, 200, "DELETE", "/v1/opt-outs/"+to, nil), "clean unknown"},
	} {
		if status(row.got) != to+" "+row.want {
			t.Errorf("%s: %s, want %s", row.name, row.got.body, row.want)
		}
	}
	// An opt-out does not change consent, and consent does not change an opt-out. Each change is
	// recorded.
	w.consent(t, to, "withdrawn")
	if got := w.write.want(t, 200, "POST", "/v1/opt-outs", set{"phone_e164": to}); status(got) != to+" dnd withdrawn" {
		t.Errorf("opt-out after a withdrawal = %s", got.body)
	}
	w.consent(t, to, "consented")
	if got := w.read.want(t, 200, "GET", "/v1/opt-outs/"+to, nil); status(got) != to+" dnd consented" {
		t.Errorf("opt-out after consent = %s", got.body)
	}
	contact := w.read.want(t, 200, "GET", "/v1/contacts?phone="+to, nil)
	sharedstack.Equal(t, "len(contact.ids())", len(contact.ids()), 1)
	sharedstack.Contains(t, "contact.body", contact.body, `"dnd_status":"dnd"`)
	sharedstack.Contains(t, "contact.body", contact.body, `"consent_status":"consented"`)
	if records := w.operator.want(t, 200, "GET", w.admin+"/consent-records?phone="+url.QueryEscape(to), nil).ids(); len(records) < 5 {
		t.Errorf("%d consent records, want one of each change", len(records))
	}
	w.write.refused(t, 422, "recipient_dnd", "POST", "/v1/calls", w.order(to))
	unseen := number(1)
	w.read.refused(t, 404, "not_found", "GET", "/v1/opt-outs/"+unseen, nil)
	w.write.refused(t, 404, "not_found", "DELETE", "/v1/opt-outs/"+unseen, nil)
	for body, code := range map[string]string{
		`{}`: "validation_error", `{"phone_e164":null}`: "validation_error", `{"phone_e164":14155550101}`: "validation_error", `{"reason":"x"}`: "validation_error",
		`{"phone_e164":"` + unseen + `","reason":7}`: "validation_error", `{"phone_e164":"` + unseen + `","reason":"` + strings.Repeat("x", 501) + `"}`: "validation_error",
		`{"phone_e164":"112"}`: "invalid_phone", `{"phone_e164":""}`: "invalid_phone", `{`: "validation_error", `[]`: "validation_error",
		`{"phone_e164":"` + unseen + `","reason":"\u0000"}`: "validation_error",
	} {
		w.write.refused(t, 422, code, "POST", "/v1/opt-outs", body)
	}
	w.read.refused(t, 404, "not_found", "GET", "/v1/opt-outs/"+unseen, nil)
}

func TestWallet_ShowsTopUpsAndCharges(t *testing.T) {
	w := workspace(t, set{"currency": "EUR"})
	read := func() (balance, currency, last string) {
		got := w.read.want(t, 200, "GET", "/v1/wallet", nil)
		return got.text("balance"), got.text("currency"), got.text("last_transaction_at")
	}
	balance, currency, last := read()
	sharedstack.Equal(t, "balance", balance, "0")
	sharedstack.Equal(t, "currency", currency, "EUR")
	sharedstack.Equal(t, "last", last, "")
	before := time.Now().Truncate(time.Millisecond)
	w.topUp(t, "1.25")
	balance, _, topped := read()
	sharedstack.Equal(t, "balance after a top-up", balance, "1.25")
	if at := instant(t, topped); at.Before(before) {
		t.Errorf("last_transaction_at after a top-up = %s, want at or after %s", at, before)
	}
	if at, now := instant(t, topped), time.Now(); at.After(now) {
		t.Errorf("last_transaction_at after a top-up = %s, want at or before %s", at, now)
	}
	queued := w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1), "scheduled_for", inOneHour()))
	if balance, _, last := read(); balance != "1.25" {
		t.Errorf(`with a hold: balance = %q, want "1.25"`, balance)
	} else if last != topped {
		t.Errorf("with a hold: last = %v, want %v", last, topped)
	}
	w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1), "scheduled_for", inOneHour()))
	// 0.25 credits are available, which is less than the hold of a call.
	w.write.refused(t, 402, "insufficient_credits", "POST", "/v1/calls", w.order(number(1)))
	w.write.want(t, 200, "POST", "/v1/call-requests/"+queued.text("id")+"/cancel", nil)
	var placed answer
	until(t, "the hold is released", func() bool {
		placed = w.write.send(t, "POST", "/v1/calls", w.order(number(1)))
		return placed.status == 202
	})
	w.ended(t, placed.text("id"))
	until(t, "the capture moves the wallet", func() bool {
		balance, _, last := read()
		return balance != "1.25" && instant(t, last).After(instant(t, topped))
	})
	w.read.refused(t, 404, "not_found", "GET", "/v1/wallet/"+uuid.NewString(), nil)
}
