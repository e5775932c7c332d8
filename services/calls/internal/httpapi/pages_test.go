package httpapi_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"ringfence.dev/libs/testkit"
)

func (r *rig) fetch(workspace uuid.UUID, path string, query url.Values) func(int, uuid.UUID) testkit.Page {
	return func(limit int, after uuid.UUID) (page testkit.Page) {
		r.t.Helper()
		query.Set("limit", fmt.Sprint(limit))
		if query.Del("starting_after"); after != uuid.Nil {
			query.Set("starting_after", after.String())
		}
		a := r.doAs(workspace, "GET", path+"?"+query.Encode(), nil)
		if a.status != http.StatusOK {
			r.t.Errorf("%s?%s = %d %v", path, query.Encode(), a.status, a.body)
			return page
		}
		for _, item := range a.body["data"].([]any) {
			page.IDs = append(page.IDs, uuid.MustParse(item.(map[string]any)["id"].(string)))
		}
		page.More = a.body["has_more"].(bool)
		return page
	}
}

// traits are the values of an item, by the names of the filter parameters. In a filter, the value
// "" matches every item.
type traits map[string]string

func (filter traits) matches(item traits) bool {
	for name, value := range filter {
		if value != "" && item[name] != value {
			return false
		}
	}
	return true
}

func (filter traits) query() url.Values {
	query := url.Values{}
	for name, value := range filter {
		if value != "" {
			query.Set(name, value)
		}
	}
	return query
}

var (
	anAgent, anotherAgent = "01900000-0000-7000-8000-0000000000a1", "01900000-0000-7000-8000-0000000000a2"
	aContact              = "01900000-0000-7000-8000-0000000000c1"
)

func drawn(rt *rapid.T, label string, from map[string][]string) traits {
	t := traits{}
	for _, name := range []string{"status", "direction", "agent_id", "contact_id", "external_ref"} {
		if values, ok := from[name]; ok {
			t[name] = rapid.SampledFrom(values).Draw(rt, label+" "+name)
		}
	}
	return t
}

const insertCall = `
INSERT INTO calls (id, workspace_id, status, direction, agent_id, contact_id, external_ref, from_number, to_e164, billable_seconds, version)
VALUES ($1, $2, $3, $4, $5, nullif($6, '')::uuid, nullif($7, ''), '+15005550006', '+14155550100', 0, 1)`

func TestCalls_EveryPageHasExactlyTheMatchingCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	statuses := []string{"initiated", "ringing", "completed", "busy"}
	rapid.Check(t, func(rt *rapid.T) {
		workspace, items := newID(t), map[uuid.UUID]traits{}
		filter := drawn(rt, "filter", map[string][]string{
			"status": append([]string{"", "", "canceled"}, statuses...), "direction": {"", "", "inbound", "outbound"}, "agent_id": {"", "", anAgent, anotherAgent},
			"contact_id": {"", "", "", aContact}, "external_ref": {"", "", "", "a%b"},
		})
		testkit.CheckPages(rt, testkit.List{
			Fetch: r.fetch(workspace, "/v1/calls", filter.query()),
			Insert: func(rt *rapid.T) uuid.UUID {
				id, c := newID(t), drawn(rt, "call", map[string][]string{
					"status": statuses, "direction": {"inbound", "outbound"}, "agent_id": {anAgent, anotherAgent}, "contact_id": {"", aContact}, "external_ref": {"", "a%b"},
				})
				r.exec(insertCall, id, workspace, c["status"], c["direction"], c["agent_id"], c["contact_id"], c["external_ref"])
				items[id] = c
				return id
			},
			Change: func(rt *rapid.T, id uuid.UUID) {
				items[id]["status"] = rapid.SampledFrom(statuses).Draw(rt, "status")
				r.exec(`UPDATE calls SET status = $2 WHERE id = $1`, id, items[id]["status"])
			},
			Matches: func(id uuid.UUID) bool { return filter.matches(items[id]) },
		})
	})
}

const insertRequest = `
INSERT INTO call_requests (id, workspace_id, status, external_ref, agent_id, contact_id, to_e164, variables, scheduled_for, schedule_if_outside_hours,
    max_call_seconds, queued_at, traceparent)
VALUES ($1, $2, 'queued', nullif($3, ''), $1, $1, '+14155550100', '{}', now(), false, 60, now(), '')`

const changeRequest = `
UPDATE call_requests SET status = $2, completed_at = CASE WHEN $2 IN ('blocked', 'completed') THEN now() END,
    error_code = CASE WHEN $2 = 'blocked' THEN 'recipient_dnd' END
WHERE id = $1`

func TestRequests_EveryPageHasExactlyTheMatchingRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rapid.Check(t, func(rt *rapid.T) {
		workspace, items := newID(t), map[uuid.UUID]traits{}
		filter := drawn(rt, "filter", map[string][]string{"status": {"", "queued", "dialing", "blocked", "failed"}, "external_ref": {"", "", "ä_", "b"}})
		testkit.CheckPages(rt, testkit.List{
			Fetch: r.fetch(workspace, "/v1/call-requests", filter.query()),
			Insert: func(rt *rapid.T) uuid.UUID {
				id, item := newID(t), drawn(rt, "request", map[string][]string{"external_ref": {"", "ä_", "b"}})
				r.exec(insertRequest, id, workspace, item["external_ref"])
				item["status"], items[id] = "queued", item
				return id
			},
			Change: func(rt *rapid.T, id uuid.UUID) {
				items[id]["status"] = rapid.SampledFrom([]string{"queued", "dialing", "completed", "blocked"}).Draw(rt, "status")
				r.exec(changeRequest, id, items[id]["status"])
			},
			Matches: func(id uuid.UUID) bool { return filter.matches(items[id]) },
		})
	})
}

func TestLists_PagesShowEachItemOnceWhileItemsAreAdded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	testkit.Race(t, func() uuid.UUID {
		id := newID(t)
		r.exec(insertCall, id, r.workspace, "busy", "outbound", anAgent, "", "")
		return id
	}, r.fetch(r.workspace, "/v1/calls", url.Values{"status": {"busy"}}))
	testkit.Race(t, func() uuid.UUID { return r.place() }, r.fetch(r.workspace, "/v1/call-requests", url.Values{}))
}

func TestLists_RefuseCursorsOfOtherLists(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.account(r.place())
	a.publish(a.ended("busy", "user_busy"))
	other := newID(t)
	r.exec(insertCall, other, newID(t), "busy", "outbound", anAgent, "", "")
	for _, tt := range []struct {
		path, cursor string
		want         int
	}{
		{"/v1/calls", a.id(), 200},
		// The call does not match the filter, but every call of the workspace is a valid cursor.
		{"/v1/calls?status=completed", a.id(), 200},
		{"/v1/calls", a.request.String(), 422},
		{"/v1/calls", other.String(), 422},
		{"/v1/calls", r.agent.String(), 422},
		{"/v1/call-requests", a.request.String(), 200},
		{"/v1/call-requests?status=queued", a.request.String(), 200},
		{"/v1/call-requests", a.id(), 422},
		{"/v1/call-requests", newID(t).String(), 422},
	} {
		path, _ := url.Parse(tt.path)
		query := path.Query()
		query.Set("starting_after", tt.cursor)
		if got := r.do("GET", path.Path+"?"+query.Encode(), nil); got.status != tt.want {
			t.Errorf("%s after %s: got.status = %v, want %v; got.body = %v", tt.path, tt.cursor, got.status, tt.want, got.body)
		} else if tt.want == 422 && got.code() != "validation_error" {
			t.Errorf(`%s after %s: got.code() = %q, want "validation_error"; got.body = %v`,
				tt.path, tt.cursor, got.code(), got.body)
		}
	}
}

// The times in the filters can have any UTC offset. A plus sign that is not percent-encoded is
// accepted too.
func TestCalls_CreatedAfterAndCreatedBeforeExcludeTheGivenTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rapid.Check(t, func(rt *rapid.T) {
		workspace := newID(t)
		made := time.UnixMilli(rapid.Int64Range(1_700_000_000_000, 1_900_000_000_000).Draw(rt, "milliseconds"))
		id := newID(t)
		for i := range 6 {
			id[5-i] = byte(made.UnixMilli() >> (8 * i))
		}
		r.exec(insertCall, id, workspace, "busy", "outbound", anAgent, "", "")
		bound := made.Add(time.Duration(rapid.SampledFrom([]int64{-1_000_000_000, -1_000_000, -1, 0, 1, 999_999, 1_000_000}).Draw(rt, "nanoseconds")))
		zone := time.FixedZone("", 900*rapid.IntRange(-48, 56).Draw(rt, "quarters of an hour"))
		text := bound.In(zone).Format(time.RFC3339Nano)
		if !rapid.Bool().Draw(rt, "raw plus") {
			text = url.QueryEscape(text)
		}
		for parameter, want := range map[string]bool{"created_after": made.After(bound), "created_before": made.Before(bound)} {
			a := r.doAs(workspace, "GET", "/v1/calls?"+parameter+"="+text, nil)
			if a.status != http.StatusOK {
				rt.Fatalf("created at %s, %s=%s: a.status = %v, want %v",
					made.UTC().Format(time.RFC3339Nano), parameter, text, a.status, http.StatusOK)
			}
			if (len(a.body["data"].([]any)) == 1) != want {
				rt.Fatalf(`created at %s, %s=%s: the list has one item = %v, want %v`,
					made.UTC().Format(time.RFC3339Nano), parameter, text, len(a.body["data"].([]any)) == 1, want)
			}
		}
	})
}

// recording_url and transcript are present only if a recording or a transcript exists.
func TestResponses_HaveExactlyTheDocumentedFields(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.account(r.place())
	a.publish(a.ended("completed", "normal_clearing"), a.analysed())
	keys := func(object any) string { return strings.Join(slices.Sorted(maps.Keys(object.(map[string]any))), " ") }
	sorted := func(names string) string {
		fields := strings.Fields(names)
		slices.Sort(fields)
		return strings.Join(fields, " ")
	}
	first := func(path string) any { return r.want(http.StatusOK, "GET", path, nil)["data"].([]any)[0] }
	full := r.want(http.StatusOK, "GET", "/v1/calls/"+a.id(), nil)
	const request = "id status call_id to agent_id external_ref scheduled_for error_code error_detail dialed_at completed_at created_at updated_at"
	for _, tt := range []struct{ name, got, want string }{
		{"light call", keys(first("/v1/calls")), "id direction from to status agent_id contact_id outcome talk_seconds created_at external_ref"},
		{
			"full call", keys(full),
			"call_id call_request_id direction from to agent_id contact_id campaign_id status hangup_cause timings " +
				"credits_charged outcome disposition summary external_ref",
		},
		{"timings", keys(full["timings"]), "queued_at dialed_at answered_at ended_at ring_seconds talk_seconds total_seconds"},
		{"listed request", keys(first("/v1/call-requests")), request},
		{"request", keys(any(r.request(a.request))), request},
	} {
		if tt.got != sorted(tt.want) {
			t.Errorf("%s has %s, want %s", tt.name, tt.got, sorted(tt.want))
		}
	}
}

// A list selects fewer columns than a GET of one item, but must show the same values.
func TestLists_ShowTheSameFieldsAsAGETOfTheItem(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.account(r.place("external_ref", "order-7"))
	a.publish(a.ended("completed", "normal_clearing"), a.analysed())
	request := r.want(http.StatusOK, "GET", "/v1/call-requests", nil)["data"].([]any)[0].(map[string]any)
	if diff := cmp.Diff(r.request(a.request), request); diff != "" {
		t.Errorf("the listed request differs (-alone +listed):\n%s", diff)
	}
	light, full := r.want(http.StatusOK, "GET", "/v1/calls", nil)["data"].([]any)[0].(map[string]any), a.read()
	for _, name := range []string{"direction", "from", "to", "status", "agent_id", "contact_id", "outcome", "external_ref"} {
		if light[name] != full[name] {
			t.Errorf("%s: listed %v, alone %v", name, light[name], full[name])
		}
	}
	if light["id"] != full["call_id"] {
		t.Errorf(`light["id"] = %v, want %v`, light["id"], full["call_id"])
	} else if light["talk_seconds"] != full["timings"].(map[string]any)["talk_seconds"] {
		t.Errorf(`light["talk_seconds"] = %v, want %v`,
			light["talk_seconds"], full["timings"].(map[string]any)["talk_seconds"])
	}
}
