package contract

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/test/kit/sharedstack"
)

func lists() []string {
	return []string{"/v1/calls", "/v1/call-requests", "/v1/contacts", subscriptions}
}

func TestListing_RefusesInvalidParameters(t *testing.T) {
	w := workspace(t)
	theirs := workspace(t).write.want(t, 201, "POST", "/v1/contacts", set{"phone_e164": number(1)}).text("id")
	good, bad := []string{"limit=1", "limit=100", "unknown=1", "LIMIT=0", "unknown=%00", "offset=5&page=2"}, map[string][]string{
		"limit":          {"0", "101", "-1", "1.5", "x", "", "1e1", "99999999999999999999", "%00", "0x10", "10%20"},
		"starting_after": {"x", "", uuid.NewString(), theirs, "00000000-0000-0000-0000-000000000000", "%FF", "%00"},
	}
	filters := map[string]map[string][]string{
		"/v1/calls": {
			"status": {"queued", "Completed", "", "%00"}, "direction": {"both", "INBOUND", ""}, "agent_id": {"x", ""}, "contact_id": {"x", "%00"},
			"created_after":  {"yesterday", "2026-06-04", "2026-06-04T09:00:00", "", "2026-13-01T00:00:00Z", "1780000000", "%00"},
			"created_before": {"x", "2026-02-30T00:00:00Z"}, "external_ref": {"%00", "%FF"},
			"to": {"14155550101", "x", "", "%2B1", "%00"}, "outcome": {"%00", "%FF"}, "call_request_id": {"x", "", "%00"},
		},
		"/v1/call-requests": {
			"status":       {"ringing", "", "QUEUED"},
			"external_ref": {"%00", "%FF"},
			"to":           {"14155550101", "x", "", "%00"},
		},
		"/v1/contacts": {
			"phone": {"14155550101", "x", "", "%2B1", "%00"}, "dnd_status": {"yes", ""}, "consent_status": {"no", "Consented"}, "q": {"%00", "%FF"},
		},
	}
	for _, path := range lists() {
		for _, query := range good {
			if got := w.read.want(t, 200, "GET", path+"?"+query, nil); len(got.ids()) != 0 {
				t.Errorf("GET %s?%s: got.ids() = %v, want none; got.body = %s", path, query, got.ids(), got.body)
			} else if got.text("has_more") != "false" {
				t.Errorf(`GET %s?%s: got.text("has_more") = %q, want "false"; got.body = %s`,
					path, query, got.text("has_more"), got.body)
			}
		}
		all := map[string][]string{}
		for name, values := range bad {
			all[name] = values
		}
		for name, values := range filters[path] {
			all[name] = values
		}
		for name, values := range all {
			for _, value := range values {
				query := "?" + name + "=" + value
				if got := w.read.refused(t, 422, "validation_error", "GET", path+query, nil); !strings.Contains(got.body, name) {
					t.Errorf("GET %s%s = %s, want %s named", path, query, got.body, name)
				}
			}
		}
	}
}

func TestListing_DefaultsTo25ItemsNewestFirst(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "100")
	var requests, contacts []string
	for range 27 {
		made := w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1), "scheduled_for", inOneHour()))
		requests = append(requests, made.text("id"))
	}
	contacts = w.read.want(t, 200, "GET", "/v1/contacts?limit=100", nil).ids()
	if len(contacts) != 27 {
		t.Fatalf("%d contacts, want 27", len(contacts))
	}
	slices.Reverse(requests)
	for path, want := range map[string][]string{"/v1/call-requests": requests, "/v1/contacts": contacts} {
		for _, row := range []struct {
			query    string
			from, to int
			more     string
		}{
			{"", 0, 25, "true"}, {"?limit=26", 0, 26, "true"}, {"?limit=27", 0, 27, "false"}, {"?limit=100", 0, 27, "false"}, {"?limit=1", 0, 1, "true"},
			{"?starting_after=" + want[24], 25, 27, "false"}, {"?limit=1&starting_after=" + want[24], 25, 26, "true"},
			{"?starting_after=" + want[26], 27, 27, "false"}, {"?starting_after=" + strings.ToUpper(want[24]), 25, 27, "false"},
		} {
			got := w.read.want(t, 200, "GET", path+row.query, nil)
			if !slices.Equal(got.ids(), want[row.from:row.to]) {
				t.Errorf("GET %s%s: got.ids() = %v, want %v; len(got.ids()) = %d",
					path, row.query, got.ids(), want[row.from:row.to], len(got.ids()))
			} else if got.text("has_more") != row.more {
				t.Errorf(`GET %s%s: got.text("has_more") = %q, want %q; len(got.ids()) = %d`,
					path, row.query, got.text("has_more"), row.more, len(got.ids()))
			}
		}
	}
}

func TestStatistics_CountEndedCalls(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "100")
	w.ended(t, w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1))).text("id"))
	w.ended(t, w.write.want(t, 202, "POST", "/v1/calls", w.order(number(90))).text("id"))
	const path = "/v1/call-statistics"
	var total map[string]any
	until(t, "both calls are counted", func() bool {
		total = w.read.want(t, 200, "GET", path, nil).members()["total"].(map[string]any)
		return total["calls"] == json.Number("2") && total["credits_charged"] != json.Number("0.000000")
	})
	one := json.Number("1")
	sharedstack.Equal(t, "answered", total["answered"], any(one))
	sharedstack.Equal(t, "statuses", total["statuses"], any(map[string]any{"completed": one, "busy": one}))
	hours := w.read.want(t, 200, "GET", path+"?time_zone=Asia/Kolkata", nil).members()["data"].([]any)
	last := hours[len(hours)-1].(map[string]any)
	if start := last["start"].(string); !strings.HasSuffix(start, ":30:00.000Z") {
		t.Errorf("start = %s, want a whole hour of Asia/Kolkata", start)
	}
	for _, query := range []string{"?agent_id=" + uuid.NewString(), "?direction=inbound"} {
		none := w.read.want(t, 200, "GET", path+query, nil).members()["total"].(map[string]any)
		sharedstack.Equal(t, "calls"+query, none["calls"], any(json.Number("0")))
	}
	for parameter, query := range map[string]string{
		"interval":      "?interval=minute",
		"time_zone":     "?time_zone=Mars/Olympus",
		"created_after": "?created_after=2020-01-01T00:00:00Z&interval=day",
		"agent_id":      "?agent_id=1",
	} {
		refused := w.read.want(t, 422, "GET", path+query, nil)
		if !strings.Contains(refused.body, parameter) {
			t.Errorf("GET %s = %s, want it to name %s", query, refused.body, parameter)
		}
	}
}

func TestListing_FiltersSelectCallsAndRequests(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "100")
	second := w.operator.want(t, 201, "POST", w.admin+"/agents", set{"name": "Bob"}).text("id")
	ref := "order 100%_+ü" // the reference contains characters with a meaning in a query or a pattern
	talked := w.ended(t, w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1), "external_ref", ref)).text("id"))
	busy := w.ended(t, w.write.want(t, 202, "POST", "/v1/calls", w.order(number(90), "agent_id", second, "external_ref", "order 100xx")).text("id"))
	waiting := w.write.want(t, 202, "POST", "/v1/calls",
		w.order(number(1), "scheduled_for", inOneHour(), "external_ref", ref))
	a, b := talked.text("call_id"), busy.text("call_id")
	born := map[string]time.Time{}
	var contact string
	until(t, "both calls have ended", func() bool {
		ended := 0
		for _, item := range w.read.want(t, 200, "GET", "/v1/calls", nil).members()["data"].([]any) {
			call := item.(map[string]any)
			born[call["id"].(string)] = instant(t, call["created_at"].(string))
			if call["status"] == "completed" || call["status"] == "busy" {
				ended++
			}
			if call["id"] == a {
				contact = call["contact_id"].(string)
			}
		}
		return ended == 2
	})
	var outcome string
	until(t, "the outcome arrives", func() bool {
		outcome = w.read.want(t, 200, "GET", "/v1/calls/"+a, nil).text("outcome")
		return outcome != ""
	})
	stamp := func(at time.Time) string { return url.QueryEscape(at.UTC().Format("2006-01-02T15:04:05.000Z07:00")) }
	east := time.FixedZone("", 2*3600)
	for query, want := range map[string][]string{
		"": {b, a}, "?status=completed": {a}, "?status=busy": {b}, "?status=ringing": {}, "?direction=outbound": {b, a}, "?direction=inbound": {},
		"?agent_id=" + second: {b}, "?agent_id=" + strings.ToUpper(w.agent): {a}, "?agent_id=" + uuid.NewString(): {}, "?contact_id=" + contact: {a},
		"?external_ref=" + url.QueryEscape(ref): {a}, "?external_ref=order": {}, "?external_ref=": {}, "?external_ref=order%20100__": {},
		"?to=" + url.QueryEscape(talked.text("to")):    {a},
		"?to=" + busy.text("to"):                       {b}, // the + is not escaped
		"?to=" + url.QueryEscape(number(1)):            {},
		"?outcome=" + outcome:                          {a},
		"?outcome=" + outcome + "&status=busy":         {},
		"?outcome=never":                               {},
		"?call_request_id=" + talked.text("id"):        {a},
		"?call_request_id=" + waiting.text("id"):       {},
		"?call_request_id=" + uuid.NewString():         {},
		"?status=busy&agent_id=" + w.agent:             {},
		"?status=completed&direction=outbound&limit=1": {a},
		"?created_after=" + stamp(born[a]):             {b},
		"?created_after=" + stamp(born[a].Add(-1e6)):   {b, a},
		"?created_before=" + stamp(born[b]):            {a},
		"?created_before=" + stamp(born[b].Add(1e6)):   {b, a},
		"?created_after=" + stamp(born[b]):             {},
		"?created_before=" + stamp(born[a]):            {},
		"?created_after=1970-01-01T00:00:00Z":          {b, a},
		"?created_before=9999-12-31T23:59:59Z":         {b, a},
		"?created_after=0001-01-01T00:00:00Z":          {b, a},
		// The + in the time is not escaped, and must not be read as a space.
		"?created_after=" + born[a].In(east).Format("2006-01-02T15:04:05.000-07:00"):                  {b},
		"?created_after=" + url.QueryEscape(born[a].In(east).Format("2006-01-02T15:04:05.000-07:00")): {b},
		"?created_after=" + stamp(born[a].Add(-1e6)) + "&created_before=" + stamp(born[b]):            {a},
	} {
		if got := w.read.want(t, 200, "GET", "/v1/calls"+query, nil).ids(); strings.Join(got, ",") != strings.Join(want, ",") {
			t.Errorf("calls%s = %v, want %v", query, got, want)
		}
	}
	for query, want := range map[string][]string{
		"?status=completed": {busy.text("id"), talked.text("id")}, "?status=queued": {waiting.text("id")}, "?status=blocked": {},
		"?external_ref=" + url.QueryEscape(ref): {waiting.text("id"), talked.text("id")}, "?external_ref=" + url.QueryEscape(ref) + "&status=queued": {waiting.text("id")},
		"?starting_after=" + waiting.text("id") + "&status=completed&limit=1": {busy.text("id")},
		"?starting_after=" + busy.text("id") + "&status=queued":               {},
		"?to=" + url.QueryEscape(talked.text("to")):                           {talked.text("id")},
		"?to=" + waiting.text("to") + "&status=completed":                     {},
		"?to=" + url.QueryEscape(number(1)):                                   {},
	} {
		if got := w.read.want(t, 200, "GET", "/v1/call-requests"+query, nil).ids(); strings.Join(got, ",") != strings.Join(want, ",") {
			t.Errorf("call-requests%s = %v, want %v", query, got, want)
		}
	}
	for _, path := range []string{"/transcript", "/recording"} {
		w.read.refused(t, 404, fmt.Sprintf("%s_not_available", path[1:]), "GET", "/v1/calls/"+a+path, nil)
		w.read.refused(t, 404, "not_found", "GET", "/v1/calls/"+uuid.NewString()+path, nil)
	}
	// A call request's id is not the id of a call.
	w.read.refused(t, 404, "not_found", "GET", "/v1/calls/"+talked.text("id"), nil)
	w.read.refused(t, 404, "not_found", "GET", "/v1/call-requests/"+a, nil)
	w.write.refused(t, 409, "not_cancelable", "POST", "/v1/call-requests/"+talked.text("id")+"/cancel", nil)
	if got := w.read.want(t, 200, "GET", "/v1/calls/"+strings.ToUpper(a), nil); got.text("call_id") != a {
		t.Errorf("an id in capitals = %s", got.body)
	}
}
