package contract

import (
	"fmt"
	"time"
)

// probes returns reads, then changes, then creations. In this order each probe finds its objects,
// also when the other workspace sends the probes.
func probes(s *otherWorkspace) []probe {
	if s.tenant == nil { // the caller needs only the list of operations
		s = &otherWorkspace{tenant: &tenant{}}
	}
	queued := fmt.Sprintf(`"scheduled_for":%q`, ahead())
	const calls, requests, contacts, optOut = "/v1/calls", "/v1/call-requests", "/v1/contacts", "/v1/opt-outs/{x}"
	const decisions, statistics = "/v1/decisions", "/v1/call-statistics"
	period := fmt.Sprintf("%s?created_after=%s&created_before=%s", statistics,
		time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	all := []probe{
		{"GET " + calls, "cursor", calls + "?starting_after={x}", "", "", s.call, unknownID()},
		{"GET " + calls, "agent_id", calls + "?agent_id={x}", "", "", s.agent, unknownID()},
		{"GET " + calls, "contact_id", calls + "?contact_id={x}", "", "", s.contact, unknownID()},
		{"GET " + calls, "external_ref", calls + "?external_ref={x}", "", "", otherRef, "a reference of nobody"},
		{"GET " + calls, "to", calls + "?to={x}", "", "", s.number, number(1)},
		{"GET " + calls, "outcome", calls + "?outcome={x}", "", "", s.outcome, "never"},
		{"GET " + calls, "call_request_id", calls + "?call_request_id={x}", "", "", s.dialed, unknownID()},
		{"GET " + calls, "a workspace in the query", calls + "?workspace_id={x}", "", "", s.id, unknownID()},
		{"GET " + calls + "/{id}", "id", calls + "/{x}", "", "", s.call, unknownID()},
		{"GET " + calls + "/{id}/transcript", "id", calls + "/{x}/transcript", "", "", s.call, unknownID()},
		{"GET " + calls + "/{id}/recording", "id", calls + "/{x}/recording", "", "", s.call, unknownID()},
		{"GET " + statistics, "agent_id", period + "&agent_id={x}", "", "", s.agent, unknownID()},
		{"GET " + statistics, "a workspace in the query", period + "&workspace_id={x}", "", "", s.id, unknownID()},
		{"GET " + requests, "cursor", requests + "?starting_after={x}", "", "", s.request, unknownID()},
		{"GET " + requests, "external_ref", requests + "?external_ref={x}", "", "", otherRef, "a reference of nobody"},
		{"GET " + requests, "to", requests + "?to={x}", "", "", s.number, number(1)},
		{"GET " + requests, "a workspace in the query", requests + "?workspace_id={x}", "", "", s.id, unknownID()},
		{"GET " + requests + "/{id}", "id", requests + "/{x}", "", "", s.request, unknownID()},
		{"GET " + requests + "/{id}/timeline", "id", requests + "/{x}/timeline", "", "", s.request, unknownID()},
		{"GET " + contacts, "cursor", contacts + "?starting_after={x}", "", "", s.contact, unknownID()},
		{"GET " + contacts, "phone", contacts + "?phone={x}", "", "", s.number, number(1)},
		{"GET " + contacts, "q", contacts + "?q={x}", "", "", otherName, "Nobody"},
		{"GET " + contacts, "email", contacts + "?email={x}", "", "", otherEmail, "nobody@example.com"},
		{"GET " + contacts, "external_id", contacts + "?external_id={x}", "", "", otherExternalID, "an id of nobody"},
		{"GET " + contacts, "a workspace in the query", contacts + "?workspace_id={x}", "", "", s.id, unknownID()},
		{"GET " + contacts + "/{id}", "id", contacts + "/{x}", "", "", s.contact, unknownID()},
		{"GET /v1/opt-outs/{phone_e164}", "an opted-out number", optOut, "", "", s.optedOut, number(1)},
		{"GET /v1/opt-outs/{phone_e164}", "a contact's number", optOut, "", "", s.number, number(1)},
		{"GET " + auditLog, "cursor", auditLog + "?starting_after={x}", "", "", s.entry, unknownID()},
		{"GET " + auditLog, "object_id", auditLog + "?object_id={x}", "", "", s.subscription, unknownID()},
		{"GET " + auditLog, "actor_id", auditLog + "?actor_id={x}", "", "", s.writeID, unknownID()},
		{"GET " + decisions, "cursor", decisions + "?starting_after={x}", "", "", s.decision, unknownID()},
		{"GET " + decisions, "phone", decisions + "?phone={x}", "", "", s.number, number(1)},
		{"GET " + decisions, "call_request_id", decisions + "?call_request_id={x}", "", "", s.request, unknownID()},
		{"GET " + decisions, "a workspace in the query", decisions + "?workspace_id={x}", "", "", s.id, unknownID()},
		{
			"POST " + decisions + "/preview",
			"a number opted out elsewhere",
			decisions + "/preview",
			`{"to":"{x}","scheduled_for":"` + ahead() + `"}`,
			"",
			s.optedOutToo,
			number(1),
		},
		{"GET " + dialing, "a workspace in the query", dialing + "?workspace_id={x}", "", "", s.id, unknownID()},
		{"GET /v1/wallet", "a workspace in the query", "/v1/wallet?workspace_id={x}", "", "", s.id, unknownID()},
		{"GET /v1/usage", "a workspace in the query", "/v1/usage?month=" + thisMonth() + "&workspace_id={x}", "", "",
			s.id, unknownID()},
		{"GET /v1/events", "id of the last event", "/v1/events?last_event_id={x}", "", "", s.event, unknownID()},
		{"GET " + subscriptions, "cursor", subscriptions + "?starting_after={x}", "", "", s.subscription, unknownID()},
		{"GET " + subscriptions, "a workspace in the query", subscriptions + "?workspace_id={x}", "", "", s.id, unknownID()},
		{"GET " + subscriptions + "/{id}", "id", subscriptions + "/{x}", "", "", s.subscription, unknownID()},
		{"GET " + subscriptions + "/{id}/deliveries", "id", subscriptions + "/{x}/deliveries", "", "",
			s.subscription, unknownID()},
		{"GET " + subscriptions + "/{id}/deliveries", "cursor",
			subscriptions + "/" + s.subscription + "/deliveries?starting_after={x}", "", "", s.delivery, unknownID()},
		{"GET " + deliveries + "/{id}", "id", deliveries + "/{x}", "", "", s.delivery, unknownID()},

		{"POST " + calls + "/{id}/hangup", "id", calls + "/{x}/hangup", "", "", s.call, unknownID()},
		{
			"PUT " + dialing, "a workspace in the body", dialing, `{"state":"active","reason":"Mine","workspace_id":"{x}"}`, "",
			s.id, unknownID(),
		},
		{"POST " + requests + "/{id}/cancel", "id", requests + "/{x}/cancel", "", "", s.request, unknownID()},
		{"PATCH " + contacts + "/{id}", "id", contacts + "/{x}", `{"name":"Mine","metadata":{"a":null,"mine":true}}`, "", s.contact, unknownID()},
		{"DELETE /v1/opt-outs/{phone_e164}", "an opted-out number", optOut, "", "", s.optedOut, number(1)},
		{"DELETE /v1/opt-outs/{phone_e164}", "a contact's number", optOut, "", "", s.number, number(1)},
	}
	all = append(all, subscriptionProbes(s)...)
	return append(all,
		probe{"POST " + calls, "agent_id", calls, `{"agent_id":"{x}","to":"+14155559901",` + queued + `}`, "", s.agent, unknownID()},
		probe{"POST " + calls, "contact_id with its number", calls, `{"agent_id":"{agent}","contact_id":"{x}","to":"` + s.number + `",` + queued + `}`, "", s.contact, unknownID()},
		probe{"POST " + calls, "contact_id with another number", calls, `{"agent_id":"{agent}","contact_id":"{x}","to":"+14155559901",` + queued + `}`, "", s.contact, unknownID()},
		probe{
			"POST " + calls, "idempotency key", calls,
			`{"agent_id":"{agent}","to":"+14155559901","idempotency_key":"{x}",` + queued + `}`, "", otherKey, "a-key-of-nobody",
		},
		probe{
			"POST " + calls, "idempotency key in the header", calls,
			`{"agent_id":"{agent}","to":"+14155559901",` + queued + `}`, "{x}", otherHeaderKey, "another-of-nobody",
		},
		probe{"POST " + calls, "a number opted out elsewhere", calls, `{"agent_id":"{agent}","to":"{x}",` + queued + `}`, "", s.optedOutToo, number(1)},
		probe{"POST /v1/opt-outs", "a number with consent elsewhere", "/v1/opt-outs", `{"phone_e164":"{x}"}`, "", s.consented, number(1)},
		probe{"POST " + contacts, "a contact's number", contacts, `{"phone_e164":"{x}"}`, "", s.number, number(1)},
	)
}

// subscriptionProbes begins with a creation, because the other workspace has the maximum number of
// active subscriptions.
func subscriptionProbes(s *otherWorkspace) []probe {
	const one = subscriptions + "/{x}"
	return []probe{
		{"POST " + subscriptions, "id and workspace in the body", subscriptions,
			`{"name":"n","url":"https://127.0.0.1:1/","events":["call.busy"],"id":"{x}","workspace_id":"` + s.id + `"}`, "", s.subscription, unknownID()},
		{"PATCH " + subscriptions + "/{id}", "id", one, `{"url":"https://127.0.0.1:1/mine"}`, "", s.subscription, unknownID()},
		{"PATCH " + subscriptions + "/{id}", "id with a body that is wrong", one, `{"status":"failed"}`, "", s.subscription, unknownID()},
		{"POST " + subscriptions + "/{id}/rotate-secret", "id", one + "/rotate-secret", "", "", s.subscription, unknownID()},
		{"POST " + subscriptions + "/{id}/test", "id", one + "/test", "", "", s.subscription, unknownID()},
		{"POST " + subscriptions + "/{id}/replay", "id", one + "/replay", `{"since":"2026-01-01T00:00:00Z"}`, "",
			s.subscription, unknownID()},
		{"POST " + subscriptions + "/{id}/replay", "id with a body that is wrong", one + "/replay", `{}`, "",
			s.subscription, unknownID()},
		{"POST " + deliveries + "/{id}/resend", "id", deliveries + "/{x}/resend", "", "", s.delivery, unknownID()},
		{"DELETE " + subscriptions + "/{id}", "id", one, "", "", s.subscription, unknownID()},
	}
}

// operatorProbes returns probes that name objects of the other workspace under the customer's path.
// Each path follows /admin/v1/workspaces/{id}.
func operatorProbes(s *otherWorkspace) []probe {
	const hooks = "/webhook-subscriptions"
	return []probe{
		{"GET /api-keys/{key_id}", "id", "/api-keys/{x}", "", "", s.writeID, unknownID()},
		{"GET /api-keys", "cursor", "/api-keys?starting_after={x}", "", "", s.writeID, unknownID()},
		{"GET /agents/{agent_id}", "id", "/agents/{x}", "", "", s.agent, unknownID()},
		{"GET /agents", "cursor", "/agents?starting_after={x}", "", "", s.agent, unknownID()},
		{"GET /agents/{agent_id}/dialing", "id", "/agents/{x}/dialing", "", "", s.agent, unknownID()},
		{"GET /agents/{agent_id}/opening", "id", "/agents/{x}/opening", "", "", s.agent, unknownID()},
		{"GET /numbers/{number_id}", "id", "/numbers/{x}", "", "", s.inbound, unknownID()},
		{"GET /numbers", "cursor", "/numbers?starting_after={x}", "", "", s.inbound, unknownID()},
		{"GET /wallet/transactions/{transaction_id}", "id", "/wallet/transactions/{x}", "", "", s.transaction, unknownID()},
		{"GET /wallet/transactions", "cursor", "/wallet/transactions?starting_after={x}", "", "", s.transaction, unknownID()},
		{"GET /consent-records/{record_id}", "id", "/consent-records/{x}", "", "", s.record, unknownID()},
		{"GET /consent-records", "cursor", "/consent-records?starting_after={x}", "", "", s.record, unknownID()},
		{"GET /consent-records", "phone", "/consent-records?phone={x}", "", "", s.number, number(1)},
		{"GET /audit", "cursor", "/audit?starting_after={x}", "", "", s.entry, unknownID()},
		{"GET /decisions/{decision_id}", "id", "/decisions/{x}", "", "", s.decision, unknownID()},
		{"GET /decisions", "cursor", "/decisions?starting_after={x}", "", "", s.decision, unknownID()},
		{"GET /erasures/{erasure_id}", "id", "/erasures/{x}", "", "", s.erasure, unknownID()},
		{"GET /erasures", "cursor", "/erasures?starting_after={x}", "", "", s.erasure, unknownID()},
		{"GET /opt-out-imports/{import_id}", "id", "/opt-out-imports/{x}", "", "", s.list, unknownID()},
		{"GET /opt-out-imports", "cursor", "/opt-out-imports?starting_after={x}", "", "", s.list, unknownID()},
		// The customer's probes have created contacts for the other numbers. The customer's
		// workspace has no contact with this number.
		{"GET /contacts/{phone_e164}/consent", "number", "/contacts/{x}/consent", "", "", s.optedOut, number(1)},
		{"GET /contacts/{phone_e164}/preview", "number", "/contacts/{x}/preview?at=" + ahead(), "", "", s.optedOut, number(1)},
		{
			"GET " + hooks + "/{subscription_id}/deliveries", "id", hooks + "/{x}/deliveries", "", "", s.subscription,
			unknownID(),
		},
		{
			"GET " + hooks + "/{subscription_id}/deliveries/{delivery_id}", "both ids", hooks + "/{x}/deliveries/" + s.delivery,
			"", "", s.subscription, unknownID(),
		},

		{"POST /call-requests/{call_request_id}/cancel", "id", "/call-requests/{x}/cancel", "", "", s.request, unknownID()},
		{"PUT /opt-out-imports/{import_id}/parts/{part}", "id", "/opt-out-imports/{x}/parts/1", "+15005550001", "", s.list, unknownID()},
		{"POST /opt-out-imports/{import_id}/start", "id", "/opt-out-imports/{x}/start", "", "", s.list, unknownID()},
		{"DELETE /contacts/{phone_e164}", "number", "/contacts/{x}", "", "", s.optedOut, number(1)},
		{"PUT /agents/{agent_id}/dialing", "id", "/agents/{x}/dialing", `{"state":"active"}`, "", s.agent, unknownID()},
		{"POST /calls/{call_id}/hangup", "id", "/calls/{x}/hangup", "", "", s.call, unknownID()},
		{"PATCH /agents/{agent_id}", "id", "/agents/{x}", `{"name":"Mine"}`, "", s.agent, unknownID()},
		{"DELETE /numbers/{number_id}", "id", "/numbers/{x}", "", "", s.inbound, unknownID()},
		{"DELETE /agents/{agent_id}", "id", "/agents/{x}", "", "", s.agent, unknownID()},
		{"DELETE /api-keys/{key_id}", "id", "/api-keys/{x}", "", "", s.writeID, unknownID()},
	}
}
