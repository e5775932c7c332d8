-- +goose Up

-- The copy of workspaces.v1: what calls needs to know of a tenant. The highest version wins.
CREATE TABLE workspaces (
    id           uuid PRIMARY KEY,
    version      bigint NOT NULL,
    currency     text NOT NULL,
    destinations text[] NOT NULL
);

CREATE TABLE agents (
    id               uuid PRIMARY KEY,
    workspace_id     uuid NOT NULL,
    version          bigint NOT NULL,
    name             text NOT NULL,
    from_e164        text,
    max_call_seconds int NOT NULL CHECK (max_call_seconds BETWEEN 1 AND 14400),
    -- Every other setting as the operator gave it. json, not jsonb: the text comes back as it was.
    settings         json NOT NULL,
    updated_at       timestamptz NOT NULL DEFAULT now(),
    deleted_at       timestamptz
);
CREATE INDEX agents_of_workspace ON agents (workspace_id, id DESC) WHERE deleted_at IS NULL;

CREATE TABLE call_requests (
    id                        uuid PRIMARY KEY,
    workspace_id              uuid NOT NULL,
    status                    text NOT NULL CHECK (status IN ('queued', 'dialing', 'completed', 'blocked', 'failed', 'canceled')),
    call_id                   uuid,
    to_e164                   text NOT NULL,
    agent_id                  uuid NOT NULL,
    contact_id                uuid NOT NULL,
    variables                 json NOT NULL,
    external_ref              text,
    scheduled_for             timestamptz NOT NULL,
    schedule_if_outside_hours boolean NOT NULL,
    -- Frozen in the hold.
    max_call_seconds          int NOT NULL,
    queued_at                 timestamptz NOT NULL,
    error_code                text,
    error_detail              text,
    dialed_at                 timestamptz,
    completed_at              timestamptz,
    updated_at                timestamptz NOT NULL DEFAULT now(),
    -- What billing-wallet said, kept here because it may come before the call is known.
    charge_settled            boolean NOT NULL DEFAULT false,
    credits_micro             bigint,
    republished_at            timestamptz,
    traceparent               text NOT NULL,
    CHECK ((completed_at IS NOT NULL) = (status IN ('completed', 'blocked', 'failed', 'canceled'))),
    CHECK ((error_code IS NOT NULL) = (status IN ('blocked', 'failed'))),
    CHECK (credits_micro IS NULL OR charge_settled)
);
CREATE INDEX call_requests_of_workspace ON call_requests (workspace_id, id DESC);
CREATE INDEX call_requests_by_external_ref ON call_requests (workspace_id, external_ref, id DESC) WHERE external_ref IS NOT NULL;
CREATE INDEX call_requests_queued ON call_requests (scheduled_for) WHERE status = 'queued';

CREATE TABLE calls (
    id               uuid PRIMARY KEY,
    workspace_id     uuid NOT NULL,
    -- Null for an inbound call.
    call_request_id  uuid,
    direction        text NOT NULL CHECK (direction IN ('inbound', 'outbound')),
    from_number      text NOT NULL,
    to_e164          text NOT NULL,
    agent_id         uuid NOT NULL,
    contact_id       uuid,
    external_ref     text,
    status           text NOT NULL CHECK (status IN ('initiated', 'ringing', 'in_progress', 'completed', 'no_answer', 'busy', 'failed', 'canceled')),
    hangup_cause     text,
    disposition      text,
    outcome          text,
    -- json, not jsonb: a \u0000 inside must not stop a fact.
    summary          json,
    transcript       json,
    queued_at        timestamptz,
    dialed_at        timestamptz,
    ringing_at       timestamptz,
    answered_at      timestamptz,
    ended_at         timestamptz,
    ring_seconds     int,
    talk_seconds     int,
    total_seconds    int,
    billable_seconds int NOT NULL,
    -- The dialer's version of the newest fact folded in.
    version          bigint NOT NULL,
    analysed         boolean NOT NULL DEFAULT false,
    charge_settled   boolean NOT NULL DEFAULT false,
    credits_micro    bigint,
    -- The number of public events so far; closed: the terminal one is among them.
    sequence         int NOT NULL DEFAULT 0,
    closed           boolean NOT NULL DEFAULT false,
    end_learned_at   timestamptz,
    -- When call.completed goes out with what there is; null when nothing is awaited.
    completes_at     timestamptz,
    traceparent      text NOT NULL DEFAULT '',
    CHECK (credits_micro IS NULL OR charge_settled),
    CHECK (NOT closed OR (status IN ('completed', 'no_answer', 'busy', 'failed', 'canceled') AND completes_at IS NULL)),
    CHECK (completes_at IS NULL OR status = 'completed')
);
CREATE INDEX calls_of_workspace ON calls (workspace_id, id DESC);
CREATE INDEX calls_by_external_ref ON calls (workspace_id, external_ref, id DESC) WHERE external_ref IS NOT NULL;
CREATE INDEX calls_by_contact ON calls (workspace_id, contact_id, id DESC) WHERE contact_id IS NOT NULL;
CREATE INDEX calls_by_request ON calls (call_request_id) WHERE call_request_id IS NOT NULL;
CREATE INDEX calls_completing ON calls (completes_at) WHERE completes_at IS NOT NULL;

-- One row an idempotency key: claimed before any question is asked, done with the request.
CREATE TABLE idempotency_keys (
    workspace_id uuid NOT NULL,
    key          text NOT NULL,
    request_id   uuid NOT NULL,
    -- What was asked; a take-over with another body must not inherit the answers given to this one.
    fingerprint  bytea NOT NULL,
    -- Rises with every take-over.
    epoch        int NOT NULL,
    leased_until timestamptz NOT NULL,
    done         boolean NOT NULL DEFAULT false,
    PRIMARY KEY (workspace_id, key)
);
CREATE INDEX idempotency_keys_by_request ON idempotency_keys (request_id);

-- Request ids that never became a request and never will.
CREATE TABLE tombstones (
    request_id uuid PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now()
);
REVOKE UPDATE, DELETE, TRUNCATE ON tombstones FROM calls_app;
