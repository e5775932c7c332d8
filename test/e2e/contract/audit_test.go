package contract

import (
	"testing"

	"ringfence.dev/test/kit/sharedstack"
)

const auditLog = "/v1/audit"

// entries returns the audit entries of the workspace that the query selects, newest first.
func (w *tenant) entries(t *testing.T, query string) (entries []map[string]any) {
	t.Helper()
	data, _ := w.write.want(t, 200, "GET", auditLog+"?"+query, nil).members()["data"].([]any)
	for _, item := range data {
		entry, _ := item.(map[string]any)
		entries = append(entries, entry)
	}
	return entries
}

// newest returns the newest audit entry about an object.
func (w *tenant) newest(t *testing.T, object string) map[string]any {
	t.Helper()
	entries := w.entries(t, "limit=1&object_id="+object)
	if len(entries) != 1 {
		t.Fatalf("audit entries about %s = %v, want one", object, entries)
	}
	return entries[0]
}

func wantEntry(t *testing.T, entry map[string]any, actorType, actorID, actorName, action, objectType string) {
	t.Helper()
	sharedstack.Equal(t, action+": actor_type", entry["actor_type"], any(actorType))
	sharedstack.Equal(t, action+": actor_id", entry["actor_id"], any(actorID))
	sharedstack.Equal(t, action+": actor_name", entry["actor_name"], any(actorName))
	sharedstack.Equal(t, action+": action", entry["action"], any(action))
	sharedstack.Equal(t, action+": object_type", entry["object_type"], any(objectType))
}

func TestAudit_NamesActorAndObjectOfEveryChange(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "10")
	made := w.write.want(
		t,
		201,
		"POST",
		"/v1/contacts",
		set{"phone_e164": number(1), "name": "Ottilie", "external_id": "7"},
	)
	contact := made.text("id")
	wantEntry(t, w.newest(t, contact), "api_key", w.writeID, "write", "contact.create", "contact")
	changed := w.write.want(t, 200, "PATCH", "/v1/contacts/"+contact, set{"external_id": "8"})
	entry := w.newest(t, contact)
	wantEntry(t, entry, "api_key", w.writeID, "write", "contact.update", "contact")
	before, _ := entry["before"].(map[string]any)
	after, _ := entry["after"].(map[string]any)
	sharedstack.Equal(t, "external_id before", before["external_id"], any("7"))
	sharedstack.Equal(t, "external_id after", after["external_id"], any("8"))
	sharedstack.Equal(t, "name, which an erasure deletes", after["name"], any("[redacted]"))
	sharedstack.Equal(t, "request_id", entry["request_id"], any(changed.header.Get("X-Request-Id")))

	request := w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1), "scheduled_for", ahead())).text("id")
	wantEntry(t, w.newest(t, request), "api_key", w.writeID, "write", "call_request.create", "call_request")
	w.write.want(t, 200, "POST", "/v1/call-requests/"+request+"/cancel", nil)
	wantEntry(t, w.newest(t, request), "api_key", w.writeID, "write", "call_request.cancel", "call_request")
	entries := len(w.entries(t, "limit=100"))
	w.write.refused(t, 409, "not_cancelable", "POST", "/v1/call-requests/"+request+"/cancel", nil)
	sharedstack.Equal(t, "entries after a refused change", len(w.entries(t, "limit=100")), entries)

	w.operator.want(t, 200, "PATCH", w.admin, set{"name": "New name"})
	entry = w.newest(t, w.id)
	sharedstack.Equal(t, "action", entry["action"], any("workspace.update"))
	sharedstack.Equal(t, "actor_type", entry["actor_type"], any("operator"))

	to := number(1)
	w.write.want(t, 200, "POST", "/v1/opt-outs", set{"phone_e164": to})
	sharedstack.Equal(t, "a raw + in object_id", w.newest(t, to)["action"], any("opt_out.create"))
}

func TestAudit_AccessToATranscriptIsListed(t *testing.T) {
	w := workspace(t, set{"features": set{"transcripts": true}})
	w.topUp(t, "10")
	request := w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1))).text("id")
	call := w.ended(t, request).text("call_id")
	path := "/v1/calls/" + call + "/transcript"
	until(t, "there is a transcript", func() bool { return w.read.send(t, "GET", path, nil).status == 200 })
	entry := w.newest(t, call)
	wantEntry(t, entry, "api_key", entry["actor_id"].(string), "read", "transcript.read", "transcript")

	operator := person(t)
	header := []string{"Ringfence-Workspace", w.id, "Ringfence-Reason", "complaint 7"}
	read := operator.want(t, 200, "GET", path, nil, header...)
	entry = w.newest(t, call)
	after, _ := entry["after"].(map[string]any)
	sharedstack.Equal(t, "actor_type", entry["actor_type"], any("user"))
	sharedstack.Equal(t, "reason", after["reason"], any("complaint 7"))
	sharedstack.Equal(t, "request_id", entry["request_id"], any(read.header.Get("X-Request-Id")))
	listed := operator.want(t, 200, "GET", auditLog+"?object_id="+call, nil, "Ringfence-Workspace", w.id)
	sharedstack.Equal(t, "newest entry that the person reads", listed.ids()[0], entry["id"].(string))
}

func TestAudit_FilteredListContainsOnlyMatchingEntries(t *testing.T) {
	w := workspace(t)
	w.read.refused(t, 403, "missing_scope", "GET", auditLog, nil)
	w.write.want(t, 201, "POST", "/v1/contacts", set{"phone_e164": number(1)})
	all := w.entries(t, "limit=100")
	at, _ := all[0]["at"].(string)
	for query, want := range map[string]int{
		"actor_id=" + w.writeID: 1, "object_type=contact": 1, "object_type=contact&actor_id=" + w.writeID: 1,
		"object_type=none": 0, "created_before=2026-01-01T00:00:00Z": 0, "created_after=" + at: 0,
		"starting_after=" + all[0]["id"].(string): len(all) - 1,
	} {
		sharedstack.Equal(t, query, len(w.entries(t, query)), want)
	}
	for _, query := range []string{"limit=101", "created_after=today", "starting_after=x", "object_id=%00"} {
		w.write.refused(t, 422, "validation_error", "GET", auditLog+"?"+query, nil)
	}
}
