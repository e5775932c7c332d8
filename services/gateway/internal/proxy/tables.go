package proxy

import "net/http"

const (
	events               = "/v1/events"
	webhookSubscriptions = "/v1/webhook-subscriptions"
	webhookDeliveries    = "/v1/webhook-deliveries"
)

// DecisionPreview is the route whose service needs the destinations of the workspace.
const DecisionPreview = "/v1/decisions/preview"

// Audit is the route of the audit log of a workspace.
const Audit = "/v1/audit"

// Public returns the routes of the public API that need a key.
func Public() Table {
	const get, post, put, patch, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete
	return Table{
		{Template: "/v1/calls", Owner: Calls, Methods: []string{get, post}},
		{Template: "/v1/calls/{id}", Owner: Calls, Methods: []string{get}},
		{Template: "/v1/calls/{id}/transcript", Owner: Calls, Methods: []string{get}},
		{Template: "/v1/calls/{id}/recording", Owner: Calls, Methods: []string{get}},
		{Template: "/v1/calls/{id}/hangup", Owner: Calls, Methods: []string{post}},
		{Template: "/v1/call-statistics", Owner: Calls, Methods: []string{get}},
		{Template: "/v1/call-requests", Owner: Calls, Methods: []string{get}},
		{Template: "/v1/call-requests/{id}", Owner: Calls, Methods: []string{get}},
		{Template: "/v1/call-requests/{id}/cancel", Owner: Calls, Methods: []string{post}},
		{Template: "/v1/call-requests/{id}/timeline", Owner: Gateway, Methods: []string{get}},
		{Template: "/v1/dialing", Owner: Dialer, Methods: []string{get, put}},
		{Template: "/v1/contacts", Owner: Contacts, Methods: []string{get, post}},
		{Template: "/v1/contacts/{id}", Owner: Contacts, Methods: []string{get, patch}},
		{Template: "/v1/opt-outs", Owner: Contacts, Methods: []string{post}},
		{Template: "/v1/opt-outs/{phone_e164}", Owner: Contacts, Methods: []string{get, del}},
		{Template: "/v1/decisions", Owner: Contacts, Methods: []string{get}},
		{Template: DecisionPreview, Owner: Contacts, Methods: []string{post}, ReadAccess: true},
		{Template: Audit, Owner: Gateway, Methods: []string{get}, WriteAccess: true},
		{Template: "/v1/wallet", Owner: Wallet, Methods: []string{get}},
		{Template: "/v1/usage", Owner: Calls, Methods: []string{get}},
		{Template: events, Owner: Webhooks, Methods: []string{get}, Stream: true},
		{Template: webhookSubscriptions, Owner: Webhooks, Methods: []string{get, post}},
		{Template: webhookSubscriptions + "/{id}", Owner: Webhooks, Methods: []string{get, patch, del}},
		{Template: webhookSubscriptions + "/{id}/rotate-secret", Owner: Webhooks, Methods: []string{post}},
		{Template: webhookSubscriptions + "/{id}/test", Owner: Webhooks, Methods: []string{post}},
		{Template: webhookSubscriptions + "/{id}/deliveries", Owner: Webhooks, Methods: []string{get}},
		{Template: webhookSubscriptions + "/{id}/replay", Owner: Webhooks, Methods: []string{post}},
		{Template: webhookDeliveries + "/{id}", Owner: Webhooks, Methods: []string{get}},
		{Template: webhookDeliveries + "/{id}/resend", Owner: Webhooks, Methods: []string{post}},
	}
}

// Open returns the routes that need no key. Only /recordings has a rate limit, which counts
// requests by the client's address.
func Open() Table {
	get := []string{http.MethodGet}
	return Table{
		{Template: "/readyz", Owner: Gateway, Methods: get},
		{Template: "/openapi.json", Owner: Gateway, Methods: get},
		{Template: "/docs", Owner: Gateway, Methods: get},
		{Template: "/docs/*", Owner: Gateway, Methods: get},
		{Template: "/llms.txt", Owner: Gateway, Methods: get},
		{Template: "/recordings/*", Owner: Dialer, Methods: get},
	}
}

// Admin returns the routes of the operator API that other services serve. These services check the
// methods. The audit log contains the template of the route, so there is one template for each
// resource.
func Admin() Table {
	const base, trunks = "/admin/v1/workspaces/{id}/", "/admin/v1/trunks"
	const subscription = base + "webhook-subscriptions/{subscription_id}"
	return Table{
		{Template: base + "calls", Owner: Calls},
		{Template: base + "calls/{call_id}/hangup", Owner: Calls},
		{Template: base + "calls/*", Owner: Calls},
		{Template: base + "call-requests", Owner: Calls},
		{Template: base + "call-requests/{call_request_id}/cancel", Owner: Calls},
		{Template: base + "call-requests/*", Owner: Calls},
		{Template: base + "usage", Owner: Calls},
		{Template: base + "agents", Owner: Calls},
		{Template: base + "agents/{agent_id}", Owner: Calls},
		{Template: base + "agents/{agent_id}/dialing", Owner: Dialer},
		{Template: base + "agents/{agent_id}/opening", Owner: Dialer},
		{Template: base + "agents/*", Owner: Calls},
		{Template: base + "dialing", Owner: Dialer},
		{Template: base + "hangup", Owner: Dialer},
		{Template: base + "attempts", Owner: Dialer},
		{Template: base + "attempts/*", Owner: Dialer},
		{Template: base + "agent-keys/{agent_id}", Owner: Dialer},
		{Template: base + "agent-keys/*", Owner: Dialer},
		{Template: base + "numbers", Owner: Dialer},
		{Template: base + "numbers/{number_id}", Owner: Dialer},
		{Template: base + "numbers/*", Owner: Dialer},
		{Template: base + "wallet", Owner: Wallet},
		{Template: base + "wallet/transactions", Owner: Wallet},
		{Template: base + "wallet/transactions/{transaction_id}", Owner: Wallet},
		{Template: base + "wallet/*", Owner: Wallet},
		{Template: base + "rates", Owner: Wallet},
		{Template: base + "contacts/{phone_e164}", Owner: Contacts},
		{Template: base + "contacts/{phone_e164}/consent", Owner: Contacts},
		{Template: base + "contacts/{phone_e164}/*", Owner: Contacts},
		{Template: base + "erasures", Owner: Contacts},
		{Template: base + "erasures/*", Owner: Contacts},
		{Template: base + "consent-records", Owner: Contacts},
		{Template: base + "consent-records/*", Owner: Contacts},
		{Template: base + "opt-out-imports", Owner: Contacts},
		{Template: base + "opt-out-imports/{import_id}", Owner: Contacts},
		{Template: base + "opt-out-imports/{import_id}/start", Owner: Contacts},
		{Template: base + "opt-out-imports/{import_id}/parts/{part}", Owner: Contacts},
		{Template: base + "opt-out-imports/*", Owner: Contacts},
		{Template: base + "decisions", Owner: Contacts},
		{Template: base + "decisions/*", Owner: Contacts},
		{Template: base + "webhook-subscriptions", Owner: Webhooks},
		{Template: subscription, Owner: Webhooks},
		{Template: subscription + "/replay", Owner: Webhooks},
		{Template: subscription + "/deliveries/replay", Owner: Webhooks},
		{Template: subscription + "/deliveries/{delivery_id}/replay", Owner: Webhooks},
		{Template: subscription + "/deliveries/{delivery_id}/resend", Owner: Webhooks},
		{Template: base + "webhook-subscriptions/*", Owner: Webhooks},
		{Template: "/admin/v1/dialer", Owner: Dialer},
		{Template: "/admin/v1/dialing", Owner: Dialer},
		{Template: trunks, Owner: Dialer},
		{Template: trunks + "/{trunk_id}", Owner: Dialer},
		{Template: trunks + "/{trunk_id}/dialing", Owner: Dialer},
		{Template: trunks + "/{trunk_id}/check", Owner: Dialer},
		{Template: trunks + "/*", Owner: Dialer},
	}
}
