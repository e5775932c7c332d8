package httpapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"ringfence.dev/services/gateway/internal/people"
	"ringfence.dev/services/gateway/internal/proxy"
)

// rule is a row of the role table: it permits methods of one route to some roles.
type rule struct {
	methods  []string
	template string
	scope    scope
	// roles are the roles that may use the route, in addition to operators.
	roles []people.Role
	// recent is true if the route needs a recent sign-in.
	recent bool
	// reason is true if an operator must give a reason.
	reason bool
	// hides is true if transcripts are removed from the response for viewers, and for operators who
	// give no reason.
	hides bool
}

// scope is how a request names the workspace whose membership is checked.
type scope int

const (
	// inHeader is for routes whose workspace is in the header Ringfence-Workspace.
	inHeader scope = iota
	// inPath is for routes of the operator API. The id of the workspace is a segment of the path.
	inPath
	// ofSystem is for routes that belong to no workspace. Only operators may use them.
	ofSystem
	// ofPerson is for routes that every person with a session may use.
	ofPerson
)

// permits reports whether the rule permits the route to a role.
func (u rule) permits(role people.Role) bool {
	return role == people.Operator || slices.Contains(u.roles, role)
}

// roleTable contains the rules for all routes of the console listener. A route without a rule is
// refused with 403.
type roleTable struct {
	rules  []rule
	routes proxy.Table
}

func newRoleTable() roleTable {
	t := roleTable{rules: slices.Concat(personRules(), customerRules(), workspaceRules(), systemRules())}
	for _, u := range t.rules {
		t.routes = append(t.routes, proxy.Route{Template: u.template, Methods: u.methods})
	}
	return t
}

// find returns the rule of a request and the match of its path. HEAD is permitted where GET is
// permitted. If several rules match, the first one is used.
func (t roleTable) find(method string, path *url.URL) (rule, proxy.Match, bool) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for i, u := range t.rules {
		if !slices.Contains(u.methods, method) {
			continue
		}
		if match, ok := t.routes[i : i+1].Find(path); ok {
			return u, match, true
		}
	}
	return rule{}, proxy.Match{}, false
}

// on returns the methods of a rule, from a list like "GET POST".
func on(methods string) []string { return strings.Fields(methods) }

// members returns all roles of a workspace. Operators may use every route in the table too.
func members() []people.Role { return people.WorkspaceRoles() }

// listeners returns the roles that may read transcripts and listen to recordings.
func listeners() []people.Role {
	return []people.Role{people.Owner, people.Developer, people.Compliance}
}

func builders() []people.Role { return []people.Role{people.Owner, people.Developer} }
func guards() []people.Role   { return []people.Role{people.Owner, people.Compliance} }
func owners() []people.Role   { return []people.Role{people.Owner} }

// personRules returns the routes of the console that concern the person who is signed in.
func personRules() []rule {
	const base = consolePath
	return []rule{
		{methods: on("GET"), template: base + "/openapi.json", scope: ofPerson},
		{methods: on("GET"), template: base + "/me", scope: ofPerson},
		{methods: on("GET DELETE"), template: base + "/sessions", scope: ofPerson},
		{methods: on("DELETE"), template: base + "/sessions/{session_id}", scope: ofPerson},
		{methods: on("GET"), template: base + "/passkeys", scope: ofPerson},
		{methods: on("POST"), template: base + "/passkeys/start", scope: ofPerson, recent: true},
		{methods: on("POST"), template: base + "/passkeys/finish", scope: ofPerson, recent: true},
		{methods: on("DELETE"), template: base + "/passkeys/{passkey_id}", scope: ofPerson, recent: true},
		{methods: on("POST"), template: base + "/invitations/accept", scope: ofPerson},
		{methods: on("GET"), template: "/openapi.json", scope: ofPerson},
		{methods: on("GET"), template: "/docs", scope: ofPerson},
		{methods: on("GET"), template: "/docs/*", scope: ofPerson},
		{methods: on("GET"), template: "/llms.txt", scope: ofPerson},
		// A link to a recording contains a signature. The role was checked by the route that
		// returned the link.
		{methods: on("GET"), template: "/recordings/*", scope: ofPerson},
		{methods: on("GET"), template: base + "/members", roles: members()},
		{methods: on("GET"), template: base + "/members/{person_id}", roles: members()},
		{methods: on("PATCH DELETE"), template: base + "/members/{person_id}", roles: owners(), recent: true},
		{methods: on("GET"), template: base + "/invitations", roles: owners()},
		{methods: on("POST"), template: base + "/invitations", roles: owners(), recent: true},
		{methods: on("GET DELETE"), template: base + "/invitations/{invitation_id}", roles: owners()},
		{methods: on("GET"), template: base + "/operator-invitations", scope: ofSystem},
		{methods: on("POST"), template: base + "/operator-invitations", scope: ofSystem, recent: true},
		{methods: on("GET DELETE"), template: base + "/operator-invitations/{invitation_id}", scope: ofSystem},
		{methods: on("POST"), template: base + "/people/{person_id}/recovery", scope: ofSystem, recent: true},
		{methods: on("GET"), template: base + "/people", scope: ofSystem},
		{methods: on("GET"), template: base + "/people/{person_id}", scope: ofSystem},
		{methods: on("DELETE"), template: base + "/people/{person_id}/sessions", scope: ofSystem},
		{methods: on("DELETE"), template: base + "/people/{person_id}/operator", scope: ofSystem, recent: true},
	}
}

// customerRules returns the routes of the public API. Only listeners may read a single call,
// because it contains the transcript and a link to the recording.
func customerRules() []rule {
	return []rule{
		{methods: on("GET"), template: "/v1/calls", roles: members()},
		{methods: on("POST"), template: "/v1/calls", roles: builders()},
		{methods: on("GET"), template: "/v1/calls/{id}", roles: listeners(), reason: true},
		{methods: on("GET"), template: "/v1/calls/{id}/transcript", roles: listeners(), reason: true},
		{methods: on("GET"), template: "/v1/calls/{id}/recording", roles: listeners(), reason: true},
		{methods: on("POST"), template: "/v1/calls/{id}/hangup", roles: listeners()},
		{methods: on("GET"), template: "/v1/call-statistics", roles: members()},
		{methods: on("GET"), template: "/v1/usage", roles: members()},
		{methods: on("GET"), template: "/v1/call-requests", roles: members()},
		{methods: on("GET"), template: "/v1/call-requests/{id}", roles: members()},
		{methods: on("POST"), template: "/v1/call-requests/{id}/cancel", roles: listeners()},
		{methods: on("GET"), template: "/v1/call-requests/{id}/timeline", roles: members()},
		{methods: on("GET"), template: "/v1/decisions", roles: members()},
		{methods: on("POST"), template: "/v1/decisions/preview", roles: members()},
		{methods: on("GET"), template: "/v1/dialing", roles: members()},
		{methods: on("PUT"), template: "/v1/dialing", roles: listeners()},
		{methods: on("GET"), template: "/v1/events", roles: members(), hides: true},
		{methods: on("GET"), template: "/v1/contacts", roles: members()},
		{methods: on("POST"), template: "/v1/contacts", roles: listeners()},
		{methods: on("GET"), template: "/v1/contacts/{id}", roles: members()},
		{methods: on("PATCH"), template: "/v1/contacts/{id}", roles: listeners()},
		{methods: on("POST"), template: "/v1/opt-outs", roles: listeners()},
		{methods: on("GET"), template: "/v1/opt-outs/{phone_e164}", roles: members()},
		{methods: on("DELETE"), template: "/v1/opt-outs/{phone_e164}", roles: guards()},
		{methods: on("GET"), template: "/v1/audit", roles: listeners()},
		{methods: on("GET"), template: "/v1/wallet", roles: members()},
		{methods: on("GET"), template: "/v1/webhook-subscriptions", roles: members()},
		// The response contains the secret, so the route needs a recent sign-in.
		{methods: on("POST"), template: "/v1/webhook-subscriptions", roles: builders(), recent: true},
		{methods: on("GET"), template: "/v1/webhook-subscriptions/{id}", roles: members()},
		{methods: on("PATCH DELETE"), template: "/v1/webhook-subscriptions/{id}", roles: builders()},
		{methods: on("GET"), template: "/v1/webhook-subscriptions/{id}/deliveries", roles: members()},
		{methods: on("POST"), template: "/v1/webhook-subscriptions/{id}/replay", roles: builders()},
		{methods: on("GET"), template: "/v1/webhook-deliveries/{id}", roles: listeners(), reason: true},
		{methods: on("POST"), template: "/v1/webhook-deliveries/{id}/resend", roles: builders()},
		{methods: on("POST"), template: "/v1/webhook-subscriptions/{id}/rotate-secret", roles: builders(), recent: true},
		{methods: on("POST"), template: "/v1/webhook-subscriptions/{id}/test", roles: builders()},
	}
}

// workspaceRules returns the routes of the operator API that belong to one workspace. Rules without
// roles are for operators only.
func workspaceRules() []rule {
	const base = "/admin/v1/workspaces/{id}"
	rules := []rule{
		{methods: on("GET"), template: base, roles: members()},
		{methods: on("PATCH"), template: base},
		{methods: on("GET"), template: base + "/api-keys", roles: builders()},
		{methods: on("GET"), template: base + "/api-keys/{key_id}", roles: builders()},
		{methods: on("POST"), template: base + "/api-keys", roles: builders(), recent: true},
		{methods: on("DELETE"), template: base + "/api-keys/{key_id}", roles: builders(), recent: true},
		// members of the workspace use the routes of the console instead
		{methods: on("GET"), template: base + "/members"},
		{methods: on("GET"), template: base + "/members/{person_id}"},
		{methods: on("PATCH DELETE"), template: base + "/members/{person_id}", recent: true},
		{methods: on("GET"), template: base + "/invitations"},
		{methods: on("POST"), template: base + "/invitations", recent: true},
		{methods: on("GET DELETE"), template: base + "/invitations/{invitation_id}"},
		{methods: on("GET"), template: base + "/usage", roles: members()},
		{methods: on("GET"), template: base + "/audit", roles: listeners()},
		{methods: on("GET"), template: base + "/calls", roles: members()},
		{methods: on("GET"), template: base + "/calls/{call_id}", roles: members()},
		{methods: on("POST"), template: base + "/calls/{call_id}/hangup", roles: listeners()},
		{methods: on("POST"), template: base + "/hangup", roles: owners(), recent: true},
		{methods: on("GET"), template: base + "/dialing", roles: members()},
		{methods: on("PUT"), template: base + "/dialing"}, // members of the workspace use /v1/dialing instead
		{methods: on("GET"), template: base + "/agents/{agent_id}/dialing", roles: members()},
		{methods: on("GET"), template: base + "/agents/{agent_id}/opening", roles: members()},
		{methods: on("PUT"), template: base + "/agents/{agent_id}/dialing", roles: listeners()},
		{methods: on("POST"), template: base + "/call-requests/{call_request_id}/cancel", roles: listeners()},
		{methods: on("GET"), template: base + "/call-requests/{call_request_id}/timeline", roles: members()},
		{methods: on("GET"), template: base + "/call-requests", roles: members()},
		{methods: on("GET"), template: base + "/call-requests/{call_request_id}", roles: members()},
		{methods: on("GET"), template: base + "/agents", roles: members()},
		{methods: on("POST"), template: base + "/agents", roles: builders()},
		{methods: on("GET"), template: base + "/agents/{agent_id}", roles: members()},
		{methods: on("PATCH DELETE"), template: base + "/agents/{agent_id}", roles: builders()},
		{methods: on("GET"), template: base + "/agent-keys/{agent_id}", roles: builders()},
		{methods: on("PUT DELETE"), template: base + "/agent-keys/{agent_id}", roles: builders(), recent: true},
		{methods: on("GET"), template: base + "/attempts", roles: members()},
		{methods: on("GET"), template: base + "/numbers", roles: members()},
		{methods: on("GET"), template: base + "/numbers/{number_id}", roles: members()},
		{methods: on("POST"), template: base + "/numbers"},
		{methods: on("DELETE"), template: base + "/numbers/{number_id}"},
		{methods: on("GET"), template: base + "/wallet", roles: members()},
		{methods: on("PATCH"), template: base + "/wallet"},
		{methods: on("GET"), template: base + "/wallet/reconcile"},
		{methods: on("GET"), template: base + "/wallet/transactions", roles: members()},
		{methods: on("POST"), template: base + "/wallet/transactions", recent: true},
		{methods: on("GET"), template: base + "/wallet/transactions/{transaction_id}", roles: members()},
		{methods: on("GET"), template: base + "/rates", roles: members()},
		{methods: on("PUT"), template: base + "/rates"},
		{methods: on("DELETE"), template: base + "/contacts/{phone_e164}", roles: guards(), recent: true},
		{methods: on("GET"), template: base + "/contacts/{phone_e164}/consent", roles: listeners()},
		{methods: on("PUT"), template: base + "/contacts/{phone_e164}/consent", roles: guards()},
		{methods: on("GET"), template: base + "/contacts/{phone_e164}/preview", roles: members()},
		{methods: on("GET"), template: base + "/erasures", roles: guards()},
		{methods: on("GET"), template: base + "/erasures/{erasure_id}", roles: guards()},
		{methods: on("GET"), template: base + "/consent-records", roles: listeners()},
		{methods: on("GET"), template: base + "/consent-records/{record_id}", roles: listeners()},
		{methods: on("GET"), template: base + "/opt-out-imports", roles: guards()},
		{methods: on("POST"), template: base + "/opt-out-imports", roles: guards()},
		{methods: on("GET"), template: base + "/opt-out-imports/{import_id}", roles: guards()},
		{methods: on("PUT"), template: base + "/opt-out-imports/{import_id}/parts/{part}", roles: guards()},
		{methods: on("POST"), template: base + "/opt-out-imports/{import_id}/start", roles: guards()},
		{methods: on("GET"), template: base + "/decisions", roles: members()},
		{methods: on("GET"), template: base + "/decisions/{decision_id}", roles: members()},
		{methods: on("GET"), template: base + "/webhook-subscriptions", roles: builders()},
		{methods: on("GET"), template: base + "/webhook-subscriptions/{subscription_id}", roles: builders()},
		{methods: on("PATCH DELETE"), template: base + "/webhook-subscriptions/{subscription_id}", roles: builders()},
		{methods: on("GET"), template: base + "/webhook-subscriptions/{subscription_id}/deliveries", roles: builders()},
		{methods: on("POST"), template: base + "/webhook-subscriptions/{subscription_id}/deliveries/replay",
			roles: builders()},
		{methods: on("GET"), template: base + "/webhook-subscriptions/{subscription_id}/deliveries/{delivery_id}",
			roles: builders()},
		{methods: on("POST"), template: base + "/webhook-subscriptions/{subscription_id}/deliveries/{delivery_id}/replay",
			roles: builders()},
		{methods: on("POST"), template: base + "/webhook-subscriptions/{subscription_id}/deliveries/{delivery_id}/resend",
			roles: builders()},
		{methods: on("POST"), template: base + "/webhook-subscriptions/{subscription_id}/replay", roles: builders()},
	}
	for i := range rules {
		rules[i].scope = inPath
	}
	return rules
}

// systemRules returns the routes of the operator API that belong to no workspace.
func systemRules() []rule {
	const base = "/admin/v1"
	rules := []rule{
		{methods: on("GET POST"), template: base + "/workspaces"},
		{methods: on("GET"), template: base + "/services"},
		{methods: on("GET"), template: base + "/parked-records"},
		{methods: on("POST"), template: base + "/parked-records/{event_id}/replay"},
		{methods: on("GET"), template: base + "/audit"},
		{methods: on("GET"), template: base + "/audit/{entry_id}"},
		{methods: on("GET"), template: base + "/people"},
		{methods: on("GET"), template: base + "/people/{person_id}"},
		{methods: on("GET DELETE"), template: base + "/people/{person_id}/sessions"},
		{methods: on("DELETE"), template: base + "/people/{person_id}/operator", recent: true},
		{methods: on("POST"), template: base + "/people/{person_id}/recovery", recent: true},
		{methods: on("GET"), template: base + "/operator-invitations"},
		{methods: on("POST"), template: base + "/operator-invitations", recent: true},
		{methods: on("GET DELETE"), template: base + "/operator-invitations/{invitation_id}"},
		{methods: on("GET"), template: base + "/dialer"},
		{methods: on("GET PUT"), template: base + "/dialing"},
		{methods: on("GET"), template: base + "/trunks"},
		{methods: on("GET PUT"), template: base + "/trunks/{trunk_id}/dialing"},
		{methods: on("GET"), template: base + "/trunks/{trunk_id}"},
		{methods: on("GET"), template: base + "/trunks/{trunk_id}/trace"},
		{methods: on("POST"), template: base + "/trunks/{trunk_id}/check"},
		// The body contains the password of the trunk, so the route needs a recent sign-in.
		{methods: on("POST"), template: base + "/trunks", recent: true},
		{methods: on("PATCH"), template: base + "/trunks/{trunk_id}", recent: true},
		{methods: on("DELETE"), template: base + "/trunks/{trunk_id}"},
	}
	for i := range rules {
		rules[i].scope = ofSystem
	}
	return rules
}
