-- +goose Up

-- What the dialer may know of a tenant: its copy of workspaces.v1, and the pace of its dials.
CREATE TABLE workspaces (
    workspace_id     uuid PRIMARY KEY,
    version          bigint  NOT NULL,
    status           text    NOT NULL,
    api_enabled      boolean NOT NULL,
    max_live_calls   integer NOT NULL,
    calls_per_second integer NOT NULL,
    destinations     text[]  NOT NULL
);

-- Paces: the instant from which the next dial of a workspace (or, with the nil uuid, of the trunk) keeps within its calls a second.
CREATE TABLE paces (
    workspace_id uuid PRIMARY KEY,
    paced_until  timestamptz NOT NULL
);

-- The copy of agents.v1.
CREATE TABLE agents (
    agent_id         uuid PRIMARY KEY,
    workspace_id     uuid    NOT NULL,
    version          bigint  NOT NULL,
    name             text    NOT NULL,
    from_e164        text    NOT NULL,
    max_call_seconds integer NOT NULL,
    instructions     text    NOT NULL,
    outcomes         text[]  NOT NULL,
    deleted          boolean NOT NULL
);

-- Our numbers: inbound calls to one reach its agent.
CREATE TABLE numbers (
    number_id    uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    phone_e164   text NOT NULL UNIQUE,
    agent_id     uuid NOT NULL
);
CREATE INDEX numbers_by_workspace ON numbers (workspace_id, number_id DESC);
CREATE INDEX numbers_by_agent ON numbers (agent_id, number_id);

-- One row a call request, for as long as its id may come again. Withdraw, block and fence are guarded updates of it: the
-- first commit wins. A withdraw that came before its request is a row without an order.
CREATE TABLE dial_queue (
    call_request_id           uuid PRIMARY KEY,
    workspace_id              uuid        NOT NULL,
    state                     text        NOT NULL,
    to_e164                   text,
    agent_id                  uuid,
    contact_id                uuid,
    variables                 jsonb,
    schedule_if_outside_hours boolean     NOT NULL DEFAULT false,
    max_call_seconds          integer     NOT NULL DEFAULT 0,
    queued_at                 timestamptz,
    due_at                    timestamptz,
    look_at                   timestamptz,
    looks                     integer     NOT NULL DEFAULT 0,
    claimed_by                uuid,
    traceparent               text        NOT NULL DEFAULT '',
    created_at                timestamptz NOT NULL DEFAULT now(),
    ended_at                  timestamptz,
    CHECK (state IN ('queued', 'dialing', 'ended', 'withdrawn', 'blocked', 'failed')),
    CHECK (state = 'withdrawn' OR (to_e164 IS NOT NULL AND agent_id IS NOT NULL AND due_at IS NOT NULL AND look_at IS NOT NULL)),
    CHECK ((ended_at IS NULL) = (state IN ('queued', 'dialing')))
);
CREATE INDEX dial_queue_due ON dial_queue (workspace_id, look_at) WHERE state = 'queued';
CREATE INDEX dial_queue_next ON dial_queue (look_at) WHERE state = 'queued';
CREATE INDEX dial_queue_claimed ON dial_queue (workspace_id) WHERE state = 'queued' AND claimed_by IS NOT NULL;
CREATE INDEX dial_queue_by_agent ON dial_queue (agent_id, look_at) WHERE state = 'queued';
CREATE INDEX dial_queue_age ON dial_queue (due_at) WHERE state = 'queued';

-- Law 1: the row that commits before anything leaves for the carrier. Never pruned, never changed.
CREATE TABLE fences (
    call_id         uuid PRIMARY KEY,
    call_request_id uuid        NOT NULL,
    attempt         integer     NOT NULL,
    trunk           text        NOT NULL,
    instance_id     uuid        NOT NULL,
    fenced_at       timestamptz NOT NULL DEFAULT now(),
    UNIQUE (call_request_id, attempt)
);
REVOKE UPDATE, DELETE, TRUNCATE ON fences FROM dialer_app;

-- Calls. fenced: nothing has left for the carrier as far as we know; void: nothing ever did. Both are ours alone, the other
-- states are the contract's. ending is why we hang up; hangup_at when the carrier is to be asked (again).
CREATE TABLE calls (
    call_id          uuid PRIMARY KEY,
    call_request_id  uuid,
    workspace_id     uuid        NOT NULL,
    direction        text        NOT NULL,
    from_number      text        NOT NULL,
    to_e164          text        NOT NULL,
    agent_id         uuid        NOT NULL,
    contact_id       uuid,
    variables        jsonb,
    status           text        NOT NULL,
    ending           text        NOT NULL DEFAULT '',
    hangup_cause     text        NOT NULL DEFAULT '',
    disposition      text        NOT NULL DEFAULT '',
    error_code       text        NOT NULL DEFAULT '',
    error_detail     text        NOT NULL DEFAULT '',
    queued_at        timestamptz,
    dialed_at        timestamptz,
    ringing_at       timestamptz,
    answered_at      timestamptz,
    ended_at         timestamptz,
    turns            jsonb       NOT NULL DEFAULT '[]',
    max_call_seconds integer     NOT NULL,
    end_by           timestamptz,
    deadline_at      timestamptz NOT NULL,
    hangup_at        timestamptz,
    answer_at        timestamptz,
    owner            uuid,
    traceparent      text        NOT NULL DEFAULT '',
    version          bigint      NOT NULL DEFAULT 0,
    CHECK (direction IN ('inbound', 'outbound')),
    CHECK ((direction = 'outbound') = (call_request_id IS NOT NULL)),
    CHECK (status IN ('fenced', 'void', 'initiated', 'ringing', 'in_progress', 'completed', 'no_answer', 'busy', 'failed', 'canceled')),
    CHECK ((ended_at IS NULL) = (status IN ('fenced', 'initiated', 'ringing', 'in_progress')))
);
-- One live call a number and workspace.
CREATE UNIQUE INDEX calls_one_live ON calls (workspace_id, to_e164) WHERE ended_at IS NULL AND direction = 'outbound';
CREATE INDEX calls_owned ON calls (owner) WHERE ended_at IS NULL;
CREATE INDEX calls_hangup ON calls (hangup_at) WHERE ended_at IS NULL AND hangup_at IS NOT NULL;
CREATE INDEX calls_answer ON calls (answer_at) WHERE ended_at IS NULL AND answer_at IS NOT NULL;
CREATE INDEX calls_longest ON calls (end_by) WHERE ended_at IS NULL AND ending = '';
CREATE INDEX calls_deadline ON calls (deadline_at) WHERE ended_at IS NULL;
CREATE INDEX calls_by_request ON calls (call_request_id);

-- People who asked, in a call, not to be called again: reported until acknowledged; until then nobody at that number is dialled.
CREATE TABLE opt_outs (
    call_id         uuid PRIMARY KEY,
    workspace_id    uuid        NOT NULL,
    phone_e164      text        NOT NULL,
    evidence        text        NOT NULL,
    heard_at        timestamptz NOT NULL,
    report_at       timestamptz NOT NULL DEFAULT now(),
    acknowledged_at timestamptz
);
CREATE INDEX opt_outs_by_number ON opt_outs (workspace_id, phone_e164);
CREATE INDEX opt_outs_to_report ON opt_outs (report_at) WHERE acknowledged_at IS NULL;

-- How far each carrier's news were read, and which replica reads them.
CREATE TABLE feeds (
    trunk        text PRIMARY KEY,
    feed         text        NOT NULL DEFAULT '',
    cursor       bigint      NOT NULL DEFAULT 0,
    reader       uuid,
    reader_until timestamptz NOT NULL DEFAULT now()
);

-- The processes that are alive: a call whose owner is not among them is an orphan.
CREATE TABLE instances (
    instance_id  uuid PRIMARY KEY,
    seen_at      timestamptz NOT NULL DEFAULT now(),
    steady_since timestamptz NOT NULL DEFAULT now()
);
