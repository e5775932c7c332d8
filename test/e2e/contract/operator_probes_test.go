package contract

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ringfence.dev/proto/openapi"
)

const (
	workspacePath = "/admin/v1/workspaces/{id}"
	agentKey      = "a-key-of-an-agent"
)

// identifying lists the query parameters whose value can belong to one workspace.
var identifying = []string{
	"starting_after", "agent_id", "contact_id", "to", "outcome", "call_request_id", "external_ref", "phone", "call_id",
	"object_id", "actor_id", "of",
}

// withoutProbe contains the operations and parameters that need no probe, with the reason.
var withoutProbe = map[string]string{
	"PUT /contacts/{phone_e164}/consent": "it writes a record of the caller's workspace about any number",
}

// TestIsolation_OperatorProbesCoverEveryOperation requires probes for the operator API: one for
// each operation whose path names an object of a workspace, and one for each query parameter that
// can name such an object.
func TestIsolation_OperatorProbesCoverEveryOperation(t *testing.T) {
	tried := map[string]bool{}
	for _, p := range allOperatorProbes(&otherWorkspace{tenant: &tenant{}}) {
		tried[p.operation] = true
		tried[p.operation+", "+strings.Replace(p.name, "cursor", "starting_after", 1)] = true
	}
	needed := operatorProbesNeeded(t)
	if len(needed) < 60 {
		t.Errorf("operations and parameters = %d, want at least 60", len(needed))
	}
	for _, name := range needed {
		if !tried[name] && withoutProbe[name] == "" {
			t.Errorf("%s has no isolation test: add a probe of it to allOperatorProbes()", name)
		}
	}
	for name := range withoutProbe {
		if !slices.Contains(needed, name) || tried[name] {
			t.Errorf("withoutProbe contains %s, which is not described or has a probe", name)
		}
	}
}

var objectInPath = regexp.MustCompile(`\{\w+\}`)

// operatorProbesNeeded returns operations such as "GET /calls/{call_id}", and parameters such as
// "GET /calls, agent_id".
func operatorProbesNeeded(t *testing.T) []string {
	t.Helper()
	type parameter struct {
		Ref      string `json:"$ref"`
		Name, In string
	}
	var described struct {
		Paths      map[string]map[string]json.RawMessage `json:"paths"`
		Components struct {
			Parameters map[string]parameter `json:"parameters"`
		} `json:"components"`
	}
	if err := json.Unmarshal(openapi.OperatorDescription, &described); err != nil {
		t.Fatal(err)
	}
	needed := map[string]bool{}
	for path, item := range described.Paths {
		below, inWorkspace := strings.CutPrefix(path, workspacePath)
		for _, method := range []string{"get", "put", "post", "patch", "delete"} {
			raw, there := item[method]
			if !inWorkspace || !there {
				continue
			}
			name := strings.ToUpper(method) + " " + below
			if objectInPath.MatchString(below) {
				needed[name] = true
			}
			var operation struct{ Parameters []parameter }
			if err := json.Unmarshal(raw, &operation); err != nil {
				t.Fatal(err)
			}
			for _, p := range operation.Parameters {
				if p.Ref != "" {
					p = described.Components.Parameters[strings.TrimPrefix(p.Ref, "#/components/parameters/")]
				}
				if p.Name == "" {
					t.Errorf("%s has a parameter without a name", name)
				}
				if p.In == "query" && slices.Contains(identifying, p.Name) {
					needed[name+", "+p.Name] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(needed))
}

// allOperatorProbes returns reads and changes. Later probes delete objects that earlier probes use.
func allOperatorProbes(s *otherWorkspace) []probe {
	all := append(callReads(s), hookReads(s)...)
	return append(append(all, hookChanges(s)...), operatorProbes(s)...)
}

func callReads(s *otherWorkspace) []probe {
	const calls, requests = "/calls", "/call-requests"
	return []probe{
		{"GET " + calls, "cursor", calls + "?starting_after={x}", "", "", s.call, unknownID()},
		{"GET " + calls, "agent_id", calls + "?agent_id={x}", "", "", s.agent, unknownID()},
		{"GET " + calls, "contact_id", calls + "?contact_id={x}", "", "", s.contact, unknownID()},
		{"GET " + calls, "to", calls + "?to={x}", "", "", s.number, number(1)},
		{"GET " + calls, "outcome", calls + "?outcome={x}", "", "", s.outcome, "never"},
		{"GET " + calls, "call_request_id", calls + "?call_request_id={x}", "", "", s.dialed, unknownID()},
		{"GET " + calls, "external_ref", calls + "?external_ref={x}", "", "", otherRef, "a reference of nobody"},
		{"GET " + calls + "/{call_id}", "id", calls + "/{x}", "", "", s.call, unknownID()},
		{"GET " + requests, "cursor", requests + "?starting_after={x}", "", "", s.request, unknownID()},
		{"GET " + requests, "to", requests + "?to={x}", "", "", s.requestTo, number(1)},
		{"GET " + requests, "external_ref", requests + "?external_ref={x}", "", "", otherRef, "a reference of nobody"},
		{"GET " + requests + "/{call_request_id}", "id", requests + "/{x}", "", "", s.request, unknownID()},
		{"GET " + requests + "/{call_request_id}/timeline", "id", requests + "/{x}/timeline", "", "", s.request, unknownID()},
		{"GET /attempts", "of", "/attempts?of={x}", "", "", s.call, unknownID()},
		{"GET /attempts", "cursor", "/attempts?of=" + s.call + "&starting_after={x}", "", "", s.attempt, unknownID()},
		{"GET /agent-keys/{agent_id}", "id", "/agent-keys/{x}", "", "", s.agent, unknownID()},
		{"GET /decisions", "phone", "/decisions?phone={x}", "", "", s.requestTo, number(1)},
		{"GET /decisions", "call_request_id", "/decisions?call_request_id={x}", "", "", s.request, unknownID()},
		{"GET /erasures", "phone", "/erasures?phone={x}", "", "", s.erasedNumber, number(1)},
		{"GET /members", "cursor", "/members?starting_after={x}", "", "", s.member, unknownID()},
		{"GET /members/{person_id}", "id", "/members/{x}", "", "", s.member, unknownID()},
		{"GET /invitations", "cursor", "/invitations?starting_after={x}", "", "", s.invitation, unknownID()},
		{"GET /invitations/{invitation_id}", "id", "/invitations/{x}", "", "", s.invitation, unknownID()},
		{"GET /audit", "actor_id", "/audit?actor_id={x}", "", "", s.writeID, unknownID()},
		{"GET /audit", "object_id", "/audit?object_id={x}", "", "", s.subscription, unknownID()},
	}
}

func hookReads(s *otherWorkspace) []probe {
	const hooks, one = "/webhook-subscriptions", "/webhook-subscriptions/{subscription_id}"
	list := hooks + "/" + s.subscription + "/deliveries"
	return []probe{
		{"GET " + hooks, "cursor", hooks + "?starting_after={x}", "", "", s.subscription, unknownID()},
		{"GET " + one, "id", hooks + "/{x}", "", "", s.subscription, unknownID()},
		{"GET " + one + "/deliveries", "cursor", list + "?starting_after={x}", "", "", s.delivery, unknownID()},
		{"GET " + one + "/deliveries", "call_id", list + "?call_id={x}", "", "", s.call, unknownID()},
		{"GET " + one + "/deliveries", "object_id", list + "?object_id={x}", "", "", s.call, unknownID()},
	}
}

// hookChanges uses the subscription s.spare, because the customer's probes delete s.subscription.
func hookChanges(s *otherWorkspace) []probe {
	const hooks, one = "/webhook-subscriptions", "/webhook-subscriptions/{subscription_id}"
	const since = `{"since":"2026-01-01T00:00:00Z"}`
	const failed = `{"status":"failed","since":"2026-01-01T00:00:00Z"}`
	each := hooks + "/{x}/deliveries/" + s.spareDelivery
	return []probe{
		{"POST " + one + "/replay", "id", hooks + "/{x}/replay", since, "", s.spare, unknownID()},
		{"POST " + one + "/deliveries/replay", "id", hooks + "/{x}/deliveries/replay", failed, "", s.spare, unknownID()},
		{"POST " + one + "/deliveries/{delivery_id}/replay", "both ids", each + "/replay", "", "", s.spare, unknownID()},
		{"POST " + one + "/deliveries/{delivery_id}/resend", "both ids", each + "/resend", "", "", s.spare, unknownID()},
		{"PATCH /members/{person_id}", "id", "/members/{x}", `{"role":"developer"}`, "", s.member, unknownID()},
		{"DELETE /members/{person_id}", "id", "/members/{x}", "", "", s.member, unknownID()},
		{"DELETE /invitations/{invitation_id}", "id", "/invitations/{x}", "", "", s.invitation, unknownID()},
		{"PATCH " + one, "id", hooks + "/{x}", `{"status":"paused"}`, "", s.spare, unknownID()},
		{"DELETE " + one, "id", hooks + "/{x}", "", "", s.spare, unknownID()},
		{"PUT /agent-keys/{agent_id}", "id", "/agent-keys/{x}", `{"key":"` + agentKey + `"}`, "", s.agent, unknownID()},
		{"DELETE /agent-keys/{agent_id}", "id", "/agent-keys/{x}", "", "", s.agent, unknownID()},
		{"POST /numbers", "agent_id", "/numbers", `{"phone_e164":"+14155559903","agent_id":"{x}"}`, "", s.agent, unknownID()},
	}
}
