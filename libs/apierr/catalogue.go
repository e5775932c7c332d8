package apierr

// Section is a section of docs/reference/errors.md, which is generated from Catalogue.
type Section struct {
	Title string
	// Note is a paragraph above the list. It can be empty.
	Note    string
	Entries []Entry
}

// Entry explains error codes. Text is Markdown: when the code occurs, and what the client can do.
type Entry struct {
	// Status is the HTTP status. It is 0 for an error_code of a call request.
	Status int
	Codes  []string
	Text   string
}

// Catalogue returns all error codes. Each code in the source must have an entry.
func Catalogue() []Section {
	return []Section{
		{Title: "All routes", Entries: []Entry{
			{400, []string{"bad_request"},
				"the request is not valid HTTP. Correct the percent-encoding of the path and the headers."},
			{401, []string{"invalid_api_key"},
				"the key is missing, malformed, revoked or unknown. Send `Authorization: Bearer <key>`."},
			{403, []string{"api_not_enabled"},
				"the plan has no API access, or the workspace is suspended. Ask the operator."},
			{403, []string{"missing_scope"}, "the key has only read access. Use a key with write access."},
			{404, []string{"not_found"},
				"the route or object does not exist in this workspace, or the id is malformed."},
			{405, []string{"method_not_allowed"}, "use a method that the header `Allow` lists."},
			{408, []string{"request_timeout"}, "the body did not arrive within 30 s. Send it again."},
			{413, []string{"request_too_large"}, "the body exceeds 256 KiB."},
			{417, []string{"expectation_failed"}, "the `Expect` header is unknown. Remove it."},
			{422, []string{"validation_error"},
				"a field or query parameter is missing or invalid. The message names the fields."},
			{429, []string{"rate_limited"}, "wait for the seconds in `Retry-After`."},
			{431, []string{"headers_too_large"}, "the request line and the headers are too large."},
			{500, []string{"internal_error"},
				"a fault of the service. Retry; if it persists, report the `X-Request-Id`."},
			{503, []string{"unavailable"},
				"a service or the database is unavailable. Retry after the seconds in `Retry-After`."},
		}},
		{Title: "Calls", Entries: []Entry{
			{402, []string{"insufficient_credits"},
				"the wallet does not cover the longest call of the agent. Top up, or lower " +
					"`max_call_seconds`."},
			{422, []string{"validation_error"}, "a field is invalid, or the destination is not permitted."},
			{422, []string{"invalid_phone"}, "`to` is not an E.164 number: `+` and 7 to 15 digits."},
			{422, []string{"invalid_agent", "invalid_contact"},
				"the agent or the contact does not exist in this workspace."},
			{422, []string{"contact_phone_mismatch"},
				"the contact has another number than `to`. Leave `contact_id` out, or correct `to`."},
			{422, []string{"recipient_dnd"}, "the number is opted out. Do not call it."},
			{422, []string{"consent_withdrawn"},
				"consent is withdrawn, or it is required and not stored. Record the consent first."},
			{422, []string{"outside_calling_hours"},
				"the window is closed, the time zone is unknown, or a frequency cap is reached. The message " +
					"names the rule and the next opening."},
			{404, []string{"transcript_not_available", "recording_not_available"},
				"this call has no stored transcript or recording."},
			{412, []string{"precondition_failed"},
				"the recording does not meet `If-Match` or `If-Unmodified-Since`. Read it without the " +
					"condition."},
			{416, []string{"range_not_satisfiable"},
				"`Range` names no part of the recording. `Content-Range` has its length."},
			{409, []string{"not_cancelable"}, "the request is no longer queued."},
			{409, []string{"invalid_state"}, "the call has ended, so it cannot be hung up."},
		}},
		{Title: "Contacts and opt-outs", Entries: []Entry{
			{409, []string{"contact_exists"}, "the number already has a contact. Use `existing_id`."},
			{422, []string{"invalid_phone"}, "the number of an opt-out is not E.164. In a path, `+` can be `%2B`."},
		}},
		{Title: "Webhook subscriptions", Entries: []Entry{
			{403, []string{"webhooks_not_enabled"}, "the plan does not include webhooks. Ask the operator."},
			{409, []string{"subscription_limit_reached"},
				"5 subscriptions are active, or 100 exist. Pause or delete one."},
			{409, []string{"subscription_not_active"},
				"the subscription is paused or failed. Set `status` to `active` first."},
			{409, []string{"invalid_state"}, "the event of the delivery was erased."},
			{422, []string{"invalid_url"}, "`url` is not https, is malformed, or leads to a private address."},
			{422, []string{"no_events"}, "`events` is missing or empty."},
			{422, []string{"invalid_event_type"}, "an event type is unknown. The message lists the types."},
			{422, []string{"invalid_status", "invalid_action"},
				"send the status `active` or `paused`. Only the service sets `failed`."},
		}},
		{Title: "Error codes of blocked call requests",
			Note: "No phone rang. `error_code` contains the code, and `error_detail` explains it in one sentence.",
			Entries: []Entry{
				{0, []string{"recipient_dnd"}, "the number was opted out after the POST."},
				{0, []string{"consent_withdrawn"},
					"consent was withdrawn, or the person's data was erased, after the POST."},
				{0, []string{"outside_calling_hours"},
					"the calling window was closed at dial time. To wait for the window, use " +
						"`schedule_if_outside_hours`."},
				{0, []string{"destination_not_allowed"}, "the destination is not permitted. Ask the operator."},
				{0, []string{"invalid_agent"},
					"the agent was deleted, or it has no number to call from. Set `from_number`."},
				{0, []string{"api_not_enabled"}, "the workspace was suspended or lost API access."},
			}},
		{Title: "Error codes of failed call requests", Entries: []Entry{
			{0, []string{"invalid_number"},
				"the number does not exist, or the operator's trunk has no route to it. `error_detail` names " +
					"the case."},
			{0, []string{"provider_rejected"},
				"the carrier or the callee's network refused the call, or the trunk refused the operator's " +
					"account. Read `error_detail`. Try later, try from another number, or ask the operator."},
			{0, []string{"provider_unavailable"}, "the carrier could not complete the call. Try later."},
			{0, []string{"agent_unavailable"}, "the agent failed during the call. Nothing is charged."},
			{0, []string{"capacity_timeout"},
				"no channel was free under the limits for 24 h. Raise the limits, or spread the calls."},
			{0, []string{"queue_expired"}, "the request was not dialed within 24 h."},
			{0, []string{"dial_state_unknown"},
				"after a crash it is not known whether the phone rang. Nothing is charged."},
			{0, []string{"internal_error"}, "a fault of the service."},
		}},
		{Title: "Operator API", Entries: []Entry{
			{409, []string{"insufficient_credits"}, "an adjustment would take the spendable credit below zero."},
			{409, []string{"number_exists"}, "the number is in use."},
			{412, []string{"precondition_failed"},
				"the workspace, agent or trunk was changed after it was read. Read it again, then send `If-Match` with the " +
					"new `ETag`."},
			{409, []string{"trunk_exists"}, "another trunk has this name."},
			{409, []string{"trunk_disabled"},
				"the trunk is disabled, so no SIP messages are recorded. Set its `status` to `active`."},
			{409, []string{"no_sip"}, "the dialer runs without SIP. Set `CARRIER=sip`."},
			{409, []string{"trace_off"}, "the messages of the trunk are not recorded."},
			{409, []string{"replay_runs"}, "the service replays another parked record. Repeat the request."},
		}},
		{Title: "Console", Note: "Only the listener at `CONSOLE_ADDR` sends these codes.", Entries: []Entry{
			{401, []string{"invalid_session"}, "the session is unknown, expired or revoked. Sign in again."},
			{401, []string{"invalid_code"}, "the sign-in code is unknown, used or expired. Create a new one."},
			{401, []string{"sign_in_expired"}, "the sign-in is unknown, finished or too old. Start again."},
			{401, []string{"sign_in_refused"},
				"the response of the OpenID provider or of the passkey is invalid. Start again."},
			{403, []string{"forbidden"}, "the role does not permit the route. Ask an owner of the workspace."},
			{403, []string{"no_access"}, "the person has no role. Ask for an invitation."},
			{403, []string{"recent_sign_in_required"},
				"the action needs a sign-in within the last 15 minutes. Sign in again."},
			{409, []string{"already_member"}, "the person has a role there already. Sign in without the invitation."},
			{409, []string{"last_owner"},
				"the last owner or operator cannot be removed. Give another person the role first."},
			{409, []string{"last_passkey"}, "the last passkey cannot be deleted. Register another one first."},
			{412, []string{"precondition_failed"},
				"the role of the member was changed after it was read. Read it again, then send `If-Match` with the new `ETag`."},
		}},
	}
}
