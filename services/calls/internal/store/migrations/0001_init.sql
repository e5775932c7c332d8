-- +goose Up

-- A copy of each workspace, from workspaces.v1. A row with a higher version replaces an older one.
CREATE TABLE workspaces (
    id                    uuid PRIMARY KEY,
    version               bigint  NOT NULL,
    currency              text    NOT NULL,
    destinations          text[]  NOT NULL,
    -- Retention in days: of calls and requests, and of transcripts. NULL means the service's default.
    keep_calls_days       int,
    keep_transcripts_days int,
    -- Whether the workspace stores and shows transcripts, and shows recordings.
    transcripts           boolean NOT NULL DEFAULT false,
    recordings            boolean NOT NULL DEFAULT false
);

CREATE TABLE agents (
    id               uuid PRIMARY KEY,
    workspace_id     uuid NOT NULL,
    version          bigint NOT NULL,
    name             text NOT NULL,
    from_e164        text,
    max_call_seconds int NOT NULL CHECK (max_call_seconds BETWEEN 1 AND 14400),
    -- All other settings as the operator sent them. json keeps the text unchanged, jsonb does not.
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
    -- The limit at the time of the request. The hold was computed from it, so it never changes.
    max_call_seconds          int NOT NULL,
    queued_at                 timestamptz NOT NULL,
    error_code                text,
    error_detail              text,
    dialed_at                 timestamptz,
    completed_at              timestamptz,
    updated_at                timestamptz NOT NULL DEFAULT now(),
    -- The charge that billing-wallet reported. It can arrive before the call is known.
    charge_settled            boolean NOT NULL DEFAULT false,
    credits_micro             bigint,
    republished_at            timestamptz,
    traceparent               text NOT NULL,
    -- True after a cancel was answered with HTTP 200. If several clients cancel the request
    -- concurrently, one cancels it and gets 200. The others find the request canceled.
    cancel_answered           boolean NOT NULL DEFAULT false,
    -- The erasure counter of the person when the request was allowed (table erasures).
    erasures                  bigint NOT NULL DEFAULT 0,
    erased_at                 timestamptz,
    -- The number of the newest dial attempt of which an event arrived. A late event of an older
    -- attempt changes nothing.
    dial_attempt              int NOT NULL DEFAULT 0,
    CHECK ((completed_at IS NOT NULL) = (status IN ('completed', 'blocked', 'failed', 'canceled'))),
    CHECK ((error_code IS NOT NULL) = (status IN ('blocked', 'failed'))),
    CHECK (credits_micro IS NULL OR charge_settled)
);
-- Lists are ordered by uuid_send(id). The primary key has no workspace, and so the planner cannot
-- use it for a list.
CREATE INDEX call_requests_by_status ON call_requests (workspace_id, status, uuid_send(id));
CREATE INDEX call_requests_by_external_ref ON call_requests (workspace_id, external_ref, status, uuid_send(id))
    WHERE external_ref IS NOT NULL;
-- The republish job reads the open requests by their due time.
CREATE INDEX call_requests_open ON call_requests (scheduled_for) WHERE status IN ('queued', 'dialing');
-- An erasure finds the requests that have no call by their number.
CREATE INDEX call_requests_without_call ON call_requests (workspace_id, to_e164) WHERE call_id IS NULL;

CREATE TABLE calls (
    id               uuid PRIMARY KEY,
    workspace_id     uuid NOT NULL,
    -- NULL for an inbound call.
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
    -- json and not jsonb: jsonb rejects \u0000, and the event could never be applied.
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
    -- The dialer's version of the newest event that was applied.
    version          bigint NOT NULL,
    analysed         boolean NOT NULL DEFAULT false,
    charge_settled   boolean NOT NULL DEFAULT false,
    credits_micro    bigint,
    -- The number of public events that were published.
    sequence         int NOT NULL DEFAULT 0,
    -- True if the terminal event was published.
    closed           boolean NOT NULL DEFAULT false,
    end_learned_at   timestamptz,
    -- When call.completed is published without the charge or the summary if they are missing.
    -- NULL if the call waits for neither.
    completes_at     timestamptz,
    traceparent      text NOT NULL DEFAULT '',
    -- The status for lists: live until the call ends, and then the final status.
    list_status      text NOT NULL
        GENERATED ALWAYS AS (CASE WHEN status IN ('initiated', 'ringing', 'in_progress') THEN 'live' ELSE status END) STORED,
    erased_at        timestamptz,
    -- The recording's key in object storage, as the dialer reported it.
    recording_key    text,
    -- Which part of the disclosure was played: text, started_at, finished_at and cut_at of the API.
    disclosure       json,
    CHECK (credits_micro IS NULL OR charge_settled),
    CHECK (NOT closed OR (status IN ('completed', 'no_answer', 'busy', 'failed', 'canceled') AND completes_at IS NULL)),
    CHECK (completes_at IS NULL OR status = 'completed'),
    CHECK (erased_at IS NULL OR (summary IS NULL AND transcript IS NULL)),
    CHECK (erased_at IS NULL OR recording_key IS NULL)
);
CREATE INDEX calls_by_workspace ON calls (workspace_id, uuid_send(id));
CREATE INDEX calls_by_status ON calls (workspace_id, direction, list_status, uuid_send(id));
CREATE INDEX calls_by_agent ON calls (workspace_id, agent_id, direction, list_status, uuid_send(id));
CREATE INDEX calls_by_external_ref ON calls (workspace_id, external_ref, direction, list_status, uuid_send(id))
    WHERE external_ref IS NOT NULL;
CREATE INDEX calls_by_contact ON calls (workspace_id, contact_id, uuid_send(id)) WHERE contact_id IS NOT NULL;
CREATE INDEX calls_by_request ON calls (call_request_id) WHERE call_request_id IS NOT NULL;
CREATE INDEX calls_completing ON calls (completes_at) WHERE completes_at IS NOT NULL;
-- The retention job deletes the oldest transcripts first.
CREATE INDEX calls_with_transcript ON calls (workspace_id, ended_at) WHERE transcript IS NOT NULL;
-- An erasure reads the inbound calls of a number in the order of their ids.
CREATE INDEX calls_by_caller ON calls (workspace_id, from_number, id) WHERE direction = 'inbound';

-- One row for each idempotency key. A request claims its key before the checks, and sets done when
-- the call request commits.
CREATE TABLE idempotency_keys (
    workspace_id uuid NOT NULL,
    key          text NOT NULL,
    request_id   uuid NOT NULL,
    -- The hash of the request body. A takeover with another body does not use the results of the
    -- checks of this body.
    fingerprint  bytea NOT NULL,
    -- Increases with each takeover.
    epoch        int NOT NULL,
    leased_until timestamptz NOT NULL,
    done         boolean NOT NULL DEFAULT false,
    PRIMARY KEY (workspace_id, key)
);
CREATE INDEX idempotency_keys_by_request ON idempotency_keys (request_id);

-- Ids for which no request exists and no request can be created. Their holds were released.
CREATE TABLE abandoned_requests (
    request_id uuid PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now()
);
REVOKE UPDATE, DELETE, TRUNCATE ON abandoned_requests FROM calls_app;

-- How often a person was erased, as contacts-compliance counts. A request that was allowed under a
-- lower count is erased, and no request is created under a lower count.
CREATE TABLE erasures (
    workspace_id uuid   NOT NULL,
    phone_e164   text   NOT NULL,
    erasures     bigint NOT NULL CHECK (erasures > 0),
    ordered_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, phone_e164)
);

-- An erasure runs in steps. The last step deletes the row, and the number with it.
CREATE TABLE erasure_jobs (
    erasure_id    uuid        PRIMARY KEY,
    workspace_id  uuid        NOT NULL,
    phone_e164    text        NOT NULL,
    contact_id    uuid        NOT NULL,
    erasures      bigint      NOT NULL CHECK (erasures > 0),
    -- True if the same erasure was ordered before.
    again         boolean     NOT NULL,
    -- The newest inbound call when the erasure was ordered.
    last_call     uuid        NOT NULL,
    -- The last request and the last inbound call that were processed.
    after_request uuid        NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    after_call    uuid        NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    -- When the next step is due.
    step_at       timestamptz NOT NULL
);
CREATE INDEX erasure_jobs_by_step ON erasure_jobs (step_at);
