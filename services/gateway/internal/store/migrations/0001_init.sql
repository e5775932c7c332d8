-- +goose Up

-- JSON that a client or a service sent is stored as json. jsonb rejects some valid JSON, for
-- example a number of 400 digits.
CREATE TABLE workspaces (
    id                    uuid PRIMARY KEY,
    name                  text        NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    plan                  text        NOT NULL CHECK (plan IN ('starter', 'growth', 'scale')),
    currency              text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    status                text        NOT NULL CHECK (status IN ('active', 'suspended')),
    -- The calling policy as an operator sent it. NULL: no policy was set. contacts-compliance
    -- applies its own copy.
    calling_policy        json,
    -- Overrides of the plan: {"api": bool, "webhooks": bool}. Each member is optional.
    features              jsonb       NOT NULL DEFAULT '{}',
    -- NULL: the limit of the plan.
    rate_limit_per_minute integer CHECK (rate_limit_per_minute > 0),
    max_live_calls        integer     NOT NULL CHECK (max_live_calls > 0),
    calls_per_second      integer     NOT NULL CHECK (calls_per_second > 0),
    destinations          text[]      NOT NULL DEFAULT '{}',
    version               bigint      NOT NULL CHECK (version > 0),
    created_at            timestamptz NOT NULL DEFAULT now(),
    updated_at            timestamptz NOT NULL DEFAULT now(),
    -- Days after which data is deleted: {"calls_days": n, "transcripts_days": n,
    -- "webhooks_days": n}. Each member is optional.
    retention             jsonb       NOT NULL DEFAULT '{}',
    -- The operator who set the calling policy, and the version of the workspace that set it.
    -- NULL: no policy was set.
    policy_operator       text,
    policy_version        bigint
);

CREATE TABLE api_keys (
    id           uuid PRIMARY KEY,
    workspace_id uuid        NOT NULL REFERENCES workspaces (id),
    name         text        NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    access       text        NOT NULL CHECK (access IN ('read', 'write')),
    -- The first characters of the key, by which a person recognises it. They are not secret.
    prefix       text        NOT NULL,
    -- HMAC-SHA256 of the whole key under API_KEY_PEPPER.
    hash         bytea       NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    created_at   timestamptz NOT NULL DEFAULT now(),
    revoked_at   timestamptz
);
CREATE INDEX api_keys_by_workspace ON api_keys (workspace_id, id);

CREATE TABLE operator_tokens (
    -- The operator's name.
    name       text PRIMARY KEY,
    hash       bytea       NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz
);

CREATE TABLE audit_entries (
    id           uuid PRIMARY KEY,
    operator     text        NOT NULL,
    workspace_id uuid,
    request_id   uuid        NOT NULL,
    method       text        NOT NULL,
    route        text        NOT NULL,
    path         text        NOT NULL,
    -- The HTTP status of the response. NULL: the outcome is unknown.
    status       integer,
    -- unchanged: the request was accepted but changed nothing, for example a top-up whose reference
    -- was used before. unknown: the gateway ended before it had stored the response.
    outcome      text        NOT NULL CHECK (outcome IN ('done', 'unchanged', 'unknown')),
    before       json,
    after        json,
    occurred_at  timestamptz NOT NULL,
    CHECK ((outcome = 'unknown') = (status IS NULL))
);
CREATE INDEX audit_entries_by_workspace ON audit_entries (workspace_id, id);
REVOKE UPDATE, DELETE, TRUNCATE ON audit_entries FROM gateway_app;

-- An operator's change that has started. The transaction that inserts the audit entry deletes this
-- row. A row that remains becomes an audit entry with the outcome unknown.
CREATE TABLE audit_intents (
    id           uuid PRIMARY KEY,
    operator     text        NOT NULL,
    workspace_id uuid,
    request_id   uuid        NOT NULL,
    method       text        NOT NULL,
    route        text        NOT NULL,
    path         text        NOT NULL,
    before       json,
    created_at   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX audit_intents_by_age ON audit_intents (created_at);

-- The state of the rate limits (GCRA). The table is unlogged: after a crash of Postgres it is empty,
-- and each client has its full limit again.
CREATE UNLOGGED TABLE rate_limits (
    key     text PRIMARY KEY,
    -- The theoretical arrival time of the next request.
    tat     timestamptz NOT NULL,
    -- The decision of the last statement. RETURNING reads it from here.
    allowed boolean     NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
