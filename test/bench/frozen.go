package main

import (
	"strings"

	"ringfence.dev/test/bench/internal/probe"
)

// The six-commit loop makes the durable commits of one POST /v1/calls without an idempotency key.
// The loop has its own copy of the tables and statements, so that a change of the product does not
// change the loop.

// sixCommits returns the commits of the loop, in order.
func sixCommits() []probe.Commit {
	return []probe.Commit{
		// commit of the pre-check: the contact, the pre-check and its decision
		{Awaited: true, Writes: []probe.Write{
			{Table: "contacts_compliance.contacts", Create: frozenContacts, SQL: insertContact,
				Args: []probe.Value{probe.Another, probe.Number}},
			{Table: "contacts_compliance.prechecks", Create: frozenPreChecks, SQL: insertPreCheck,
				Args: []probe.Value{probe.Request, probe.Number}},
			{Table: "contacts_compliance.decisions", Create: frozenDecisions, SQL: insertDecision,
				Args: []probe.Value{probe.Another, probe.Request, probe.Number}},
		}},
		// commit of the hold: the wallet, the hold and the ledger entry
		{Awaited: true, Writes: []probe.Write{
			{Table: "billing_wallet.holds", Create: frozenHolds, SQL: insertHold,
				Args: []probe.Value{probe.Request, probe.Lane}},
			{Table: "billing_wallet.transactions", Create: frozenTransactions, SQL: insertTransaction,
				Args: []probe.Value{probe.Another, probe.Request, probe.Lane}},
			{Table: "billing_wallet.wallets", Create: frozenWallets, Args: []probe.Value{probe.Lane},
				SQL: "UPDATE {} SET wallet_micro = wallet_micro - 1, held_micro = held_micro + 1 WHERE workspace_id = $1"},
		}},
		// commit of the request and its event
		{Awaited: true, Writes: []probe.Write{
			{Table: "calls.call_requests", Create: frozenRequests, SQL: insertRequest,
				Args: []probe.Value{probe.Request, probe.Number}},
			{Table: "calls.outbox", Create: frozenOutbox, SQL: insertOutbox,
				Args: []probe.Value{probe.Sequence, probe.Another}},
		}},
		// commit of the relay, which deletes the published event
		{Writes: []probe.Write{
			{Table: "calls.outbox", Create: frozenOutbox, Args: []probe.Value{probe.Sequence},
				SQL: "DELETE FROM {} WHERE id = $1"},
		}},
		// commit of the dialer, which inserts the request into its queue
		{Writes: []probe.Write{
			inboxRow("dialer"),
			{Table: "dialer.dial_queue", Create: frozenQueue, SQL: insertQueued,
				Args: []probe.Value{probe.Request, probe.Number}},
		}},
		// commit of billing-wallet, which confirms the hold
		{Writes: []probe.Write{
			inboxRow("billing_wallet"),
			{Table: "billing_wallet.holds", Create: frozenHolds, Args: []probe.Value{probe.Request},
				SQL: "UPDATE {} SET confirmed_at = now() WHERE request_id = $1"},
		}},
	}
}

// inboxRow returns the write that stores the id of a consumed event.
func inboxRow(schema string) probe.Write {
	return probe.Write{
		Table: schema + ".inbox",
		Create: `CREATE TABLE {} (consumer text NOT NULL, topic text NOT NULL, event_id uuid NOT NULL,
			received_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (consumer, topic, event_id));
			CREATE INDEX ON {} (received_at)`,
		SQL:  "INSERT INTO {} (consumer, topic, event_id) VALUES ('bench', 'call-requests.v1', $1)",
		Args: []probe.Value{probe.Another},
	}
}

// jsonLiteral returns an SQL literal. It contains no braces, because probe replaces braces in
// statements.
func jsonLiteral(text string) string {
	return "E'" + strings.NewReplacer("{", `\x7b`, "}", `\x7d`).Replace(text) + "'"
}

const (
	frozenContacts = `
CREATE TABLE {} (id uuid PRIMARY KEY, workspace_id uuid NOT NULL, phone_e164 text NOT NULL, name text, name_folded text,
	email text, external_id text, variables json NOT NULL, variables_revision bigint NOT NULL DEFAULT 0,
	metadata json NOT NULL, time_zone text, consent_status text NOT NULL DEFAULT 'unknown',
	dnd_status text NOT NULL DEFAULT 'unknown', updated_at timestamptz NOT NULL, erasures bigint NOT NULL DEFAULT 0,
	UNIQUE (workspace_id, phone_e164),
	CHECK (consent_status IN ('unknown', 'consented', 'withdrawn')), CHECK (dnd_status IN ('unknown', 'clean', 'dnd')),
	CHECK (phone_e164 ~ '^\+[1-9][0-9]*$' AND length(phone_e164) BETWEEN 8 AND 16));
CREATE INDEX ON {} (workspace_id, phone_e164) WHERE erasures > 0;
CREATE INDEX ON {} (workspace_id, dnd_status, consent_status, uuid_send(id));
CREATE INDEX ON {} (workspace_id, name_folded) WHERE name_folded IS NOT NULL;
CREATE INDEX ON {} (workspace_id, uuid_send(id)) WHERE name_folded IS NOT NULL`

	frozenPreChecks = `
CREATE TABLE {} (workspace_id uuid NOT NULL, call_request_id uuid NOT NULL, phone_e164 text NOT NULL,
	contact_id uuid NOT NULL, variables json NOT NULL, scheduled_for timestamptz NOT NULL,
	created_at timestamptz NOT NULL DEFAULT now(), erasures bigint NOT NULL DEFAULT 0,
	PRIMARY KEY (workspace_id, call_request_id, phone_e164));
CREATE INDEX ON {} (created_at)`

	frozenDecisions = `
CREATE TABLE {} (id uuid NOT NULL, workspace_id uuid NOT NULL, call_request_id uuid NOT NULL, phone_e164 text NOT NULL,
	contact_id uuid, kind text NOT NULL, inputs json NOT NULL, policy_version integer NOT NULL, result text NOT NULL,
	rule text NOT NULL, code text NOT NULL, message text NOT NULL, call_at timestamptz, judged_at timestamptz NOT NULL,
	PRIMARY KEY (workspace_id, id, judged_at), CHECK ((result = 'closed') = (call_at IS NULL)),
	CHECK ((result = 'closed') = (code <> '')), CHECK (kind IN ('precheck', 'dial')),
	CHECK (result IN ('open', 'later', 'closed')));
CREATE INDEX ON {} (workspace_id, phone_e164, id DESC);
CREATE INDEX ON {} (workspace_id, call_request_id, id)`

	frozenHolds = `
CREATE TABLE {} (request_id uuid PRIMARY KEY, workspace_id uuid NOT NULL,
	amount_micro bigint NOT NULL CHECK (amount_micro >= 0), currency text NOT NULL,
	per_minute_micro bigint NOT NULL CHECK (per_minute_micro >= 0),
	increment_seconds integer NOT NULL CHECK (increment_seconds >= 1),
	max_call_seconds integer NOT NULL CHECK (max_call_seconds >= 1), state text NOT NULL, captured_micro bigint,
	call_id uuid, created_at timestamptz NOT NULL DEFAULT now(), confirmed_at timestamptz, unconfirmed_at timestamptz,
	settled_at timestamptz, CHECK (captured_micro >= 1 AND captured_micro <= amount_micro),
	CHECK ((state = 'captured') = (captured_micro IS NOT NULL)), CHECK ((state = 'held') = (settled_at IS NULL)),
	CHECK (state IN ('held', 'captured', 'released')));
CREATE INDEX ON {} (workspace_id, state);
CREATE INDEX ON {} (created_at) WHERE state = 'held' AND confirmed_at IS NULL`

	frozenTransactions = `
CREATE TABLE {} (id uuid PRIMARY KEY, workspace_id uuid NOT NULL, kind text NOT NULL,
	reference text CHECK (char_length(reference) BETWEEN 1 AND 255), operator text, request_id uuid,
	wallet_micro bigint NOT NULL, held_micro bigint NOT NULL, revenue_micro bigint NOT NULL, funding_micro bigint NOT NULL,
	CHECK (CASE WHEN kind IN ('top_up', 'adjustment')
		THEN reference IS NOT NULL AND operator IS NOT NULL AND request_id IS NULL
		ELSE request_id IS NOT NULL AND reference IS NULL AND operator IS NULL END),
	CHECK (CASE kind
		WHEN 'top_up' THEN wallet_micro > 0 AND held_micro = 0 AND revenue_micro = 0
		WHEN 'adjustment' THEN wallet_micro <> 0 AND held_micro = 0 AND revenue_micro = 0
		WHEN 'hold' THEN held_micro >= 0 AND revenue_micro = 0 AND funding_micro = 0
		WHEN 'capture' THEN held_micro < 0 AND wallet_micro >= 0 AND revenue_micro > 0 AND funding_micro = 0
		WHEN 'release' THEN held_micro <= 0 AND revenue_micro = 0 AND funding_micro = 0 ELSE false END),
	CHECK (wallet_micro + held_micro + revenue_micro + funding_micro = 0));
CREATE UNIQUE INDEX ON {} (request_id) WHERE kind = 'hold';
CREATE INDEX ON {} (workspace_id, id);
CREATE UNIQUE INDEX ON {} (workspace_id, reference) WHERE reference IS NOT NULL;
CREATE UNIQUE INDEX ON {} (request_id) WHERE kind IN ('capture', 'release')`

	frozenWallets = `
CREATE TABLE {} (workspace_id uuid PRIMARY KEY, currency text NOT NULL CHECK (currency ~ '^[A-Z][A-Z][A-Z]$'),
	wallet_micro bigint NOT NULL DEFAULT 0 CHECK (wallet_micro >= 0),
	held_micro bigint NOT NULL DEFAULT 0 CHECK (held_micro >= 0),
	revenue_micro bigint NOT NULL DEFAULT 0 CHECK (revenue_micro >= 0), funding_micro bigint NOT NULL DEFAULT 0,
	last_transaction_at timestamptz, created_at timestamptz NOT NULL DEFAULT now(),
	CHECK (wallet_micro + held_micro + revenue_micro + funding_micro = 0)) WITH (fillfactor = 50)`

	frozenRequests = `
CREATE TABLE {} (id uuid PRIMARY KEY, workspace_id uuid NOT NULL, status text NOT NULL, call_id uuid,
	to_e164 text NOT NULL, agent_id uuid NOT NULL, contact_id uuid NOT NULL, variables json NOT NULL, external_ref text,
	scheduled_for timestamptz NOT NULL, schedule_if_outside_hours boolean NOT NULL, max_call_seconds integer NOT NULL,
	queued_at timestamptz NOT NULL, error_code text, error_detail text, dialed_at timestamptz, completed_at timestamptz,
	updated_at timestamptz NOT NULL DEFAULT now(), charge_settled boolean NOT NULL DEFAULT false, credits_micro bigint,
	republished_at timestamptz, traceparent text NOT NULL, cancel_answered boolean NOT NULL DEFAULT false,
	erasures bigint NOT NULL DEFAULT 0, erased_at timestamptz,
	CHECK ((completed_at IS NOT NULL) = (status IN ('completed', 'blocked', 'failed', 'canceled'))),
	CHECK ((error_code IS NOT NULL) = (status IN ('blocked', 'failed'))), CHECK (credits_micro IS NULL OR charge_settled),
	CHECK (status IN ('queued', 'dialing', 'completed', 'blocked', 'failed', 'canceled')));
CREATE INDEX ON {} (workspace_id, status, uuid_send(id));
CREATE INDEX ON {} (workspace_id, external_ref, status, uuid_send(id)) WHERE external_ref IS NOT NULL;
CREATE INDEX ON {} (scheduled_for) WHERE status = 'queued';
CREATE INDEX ON {} (workspace_id, to_e164) WHERE call_id IS NULL`

	frozenOutbox = `
CREATE TABLE {} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid NOT NULL,
	topic text NOT NULL CHECK (topic <> ''), key bytea NOT NULL, headers jsonb NOT NULL,
	payload bytea CHECK (octet_length(payload) <= 921600), created_at timestamptz NOT NULL DEFAULT now(),
	CHECK (octet_length(headers::text) + octet_length(key) <= 32768))
	WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0)`

	frozenQueue = `
CREATE TABLE {} (call_request_id uuid PRIMARY KEY, workspace_id uuid NOT NULL, state text NOT NULL, to_e164 text,
	agent_id uuid, contact_id uuid, variables json, schedule_if_outside_hours boolean NOT NULL DEFAULT false,
	max_call_seconds integer NOT NULL DEFAULT 0, queued_at timestamptz, due_at timestamptz, look_at timestamptz,
	looks integer NOT NULL DEFAULT 0, claimed_by uuid, traceparent text NOT NULL DEFAULT '',
	created_at timestamptz NOT NULL DEFAULT now(), ended_at timestamptz, ready boolean NOT NULL DEFAULT false,
	held boolean NOT NULL DEFAULT false,
	CHECK (state = 'withdrawn'
		OR to_e164 IS NOT NULL AND agent_id IS NOT NULL AND due_at IS NOT NULL AND look_at IS NOT NULL),
	CHECK ((ended_at IS NULL) = (state IN ('queued', 'dialing'))), CHECK (NOT (ready AND held)),
	CHECK (state IN ('queued', 'dialing', 'ended', 'withdrawn', 'blocked', 'failed')))
	WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000);
CREATE INDEX ON {} (due_at) WHERE state = 'queued';
CREATE INDEX ON {} (look_at) WHERE state = 'queued' AND NOT ready;
CREATE INDEX ON {} (agent_id, look_at) WHERE state = 'queued' AND NOT ready AND claimed_by IS NULL;
CREATE INDEX ON {} (workspace_id, to_e164) WHERE state = 'queued' AND claimed_by IS NOT NULL;
CREATE INDEX ON {} (workspace_id, to_e164, due_at) WHERE state = 'queued' AND held;
CREATE INDEX ON {} (workspace_id, look_at) WHERE state = 'queued' AND ready;
CREATE INDEX ON {} (workspace_id, look_at) WHERE state = 'queued' AND NOT ready AND claimed_by IS NULL`
)

// aWorkspace, anAgent and aContact are the ids in all rows of the loop.
const (
	aWorkspace = `'01a21a8d-2e36-77b1-b6f7-63c4f79f5d1e'`
	anAgent    = `'01a21a8d-2ec9-79d3-9671-38b41d1cdc52'`
	aContact   = `'01a21a8d-38ea-7391-a0f0-1a144ebfab28'`
)

var (
	emptyObject = jsonLiteral("{}")

	insertContact = `
INSERT INTO {} (id, workspace_id, phone_e164, variables, metadata, updated_at)
VALUES ($1, ` + aWorkspace + `, $2, ` + emptyObject + `, ` + emptyObject + `, now())`

	insertPreCheck = `
INSERT INTO {} (workspace_id, call_request_id, phone_e164, contact_id, variables, scheduled_for)
VALUES (` + aWorkspace + `, $1, $2, ` + aContact + `, ` + emptyObject + `, now())`

	insertDecision = `
INSERT INTO {} (id, workspace_id, call_request_id, phone_e164, contact_id, kind, inputs, policy_version, result,
	rule, code, message, call_at, judged_at)
VALUES ($1, ` + aWorkspace + `, $2, $3, ` + aContact + `, 'precheck', ` + jsonLiteral(`{"stage":"precheck",`+
		`"at":"2026-11-28T01:11:46Z","dnd_status":"unknown","consent_status":"unknown","policy":{"window":{"start":"00:00",`+
		`"end":"24:00","days":["mon","tue","wed","thu","fri","sat","sun"]},"timezone":"recipient"},"number_zones":null,`+
		`"contact_zone":null,"schedule_if_outside_hours":false}`) + `, 1, 'open', '', '', '', now(), now())`

	insertHold = `
INSERT INTO {} (request_id, workspace_id, amount_micro, currency, per_minute_micro, increment_seconds,
	max_call_seconds, state)
VALUES ($1, $2, 500000, 'USD', 50000, 1, 600, 'held')`

	insertTransaction = `
INSERT INTO {} (id, request_id, workspace_id, kind, wallet_micro, held_micro, revenue_micro, funding_micro)
VALUES ($1, $2, $3, 'hold', -500000, 500000, 0, 0)`

	insertRequest = `
INSERT INTO {} (id, workspace_id, status, to_e164, agent_id, contact_id, variables, scheduled_for,
	schedule_if_outside_hours, max_call_seconds, queued_at, traceparent)
VALUES ($1, ` + aWorkspace + `, 'queued', $2, ` + anAgent + `, ` + aContact + `, ` + emptyObject + `,
	now() + interval '1 day', false, 600, now(), '')`

	// The payload has the size of the event of a request without variables.
	insertOutbox = `
INSERT INTO {} (id, event_id, topic, key, headers, payload) OVERRIDING SYSTEM VALUE
VALUES ($1, $2, 'call-requests.v1', convert_to(` + aContact + `, 'UTF8'), ` + jsonLiteral(`{"ce_specversion":"1.0",`+
		`"ce_id":"01a21a8d-38ea-7391-a0f0-1a144ebfab28","ce_source":"/calls",`+
		`"ce_type":"ringfence.event.v1.CallRequestEvent",`+
		`"ce_time":"2026-11-27T01:09:52.629814Z","ce_subject":"01a21a8d-38ab-790c-8333-2a585621b7d5",`+
		`"ce_partitionkey":"01a21a8d-38ab-790c-8333-2a585621b7d5","ce_workspaceid":"01a21a8d-2e36-77b1-b6f7-63c4f79f5d1e",`+
		`"content-type":"application/protobuf"}`) + `, decode(repeat('0a', 220), 'hex'))`

	insertQueued = `
INSERT INTO {} (call_request_id, workspace_id, state, to_e164, agent_id, contact_id, variables, max_call_seconds,
	queued_at, due_at, look_at)
VALUES ($1, ` + aWorkspace + `, 'queued', $2, ` + anAgent + `, ` + aContact + `, ` + emptyObject + `, 600, now(),
	now() + interval '1 day', now() + interval '1 day')`
)
