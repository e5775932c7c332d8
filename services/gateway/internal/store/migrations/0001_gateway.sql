-- +goose Up
CREATE TABLE workspaces (
    id                    uuid PRIMARY KEY,
    name                  text        NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    plan                  text        NOT NULL CHECK (plan IN ('starter', 'growth', 'scale')),
    currency              text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    status                text        NOT NULL CHECK (status IN ('active', 'suspended')),
    -- A copy for the operator's eyes; contacts-compliance owns the policy that counts.
    calling_policy        jsonb,
    -- Overrides of the plan: {"api": bool, "webhooks": bool}, each optional.
    features              jsonb       NOT NULL DEFAULT '{}',
    -- NULL: the plan's.
    rate_limit_per_minute integer CHECK (rate_limit_per_minute > 0),
    max_live_calls        integer     NOT NULL CHECK (max_live_calls > 0),
    calls_per_second      integer     NOT NULL CHECK (calls_per_second > 0),
    destinations          text[]      NOT NULL DEFAULT '{}',
    version               bigint      NOT NULL CHECK (version > 0),
    created_at            timestamptz NOT NULL DEFAULT now(),
    updated_at            timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE api_keys (
    id           uuid PRIMARY KEY,
    workspace_id uuid        NOT NULL REFERENCES workspaces (id),
    name         text        NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    access       text        NOT NULL CHECK (access IN ('read', 'write')),
    -- What a person recognises the key by; not secret.
    prefix       text        NOT NULL,
    -- HMAC-SHA256 of the whole key under API_KEY_PEPPER.
    hash         bytea       NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    created_at   timestamptz NOT NULL DEFAULT now(),
    revoked_at   timestamptz
);
CREATE INDEX api_keys_by_workspace ON api_keys (workspace_id, id);

CREATE TABLE operators (
    name       text PRIMARY KEY,
    hash       bytea       NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz
);

CREATE TABLE audit (
    id           uuid PRIMARY KEY,
    operator     text        NOT NULL,
    workspace_id uuid,
    request_id   uuid        NOT NULL,
    method       text        NOT NULL,
    route        text        NOT NULL,
    path         text        NOT NULL,
    -- NULL: the answer was never seen.
    status       integer,
    outcome      text        NOT NULL CHECK (outcome IN ('done', 'unknown')),
    before       jsonb,
    after        jsonb,
    occurred_at  timestamptz NOT NULL,
    CHECK ((outcome = 'unknown') = (status IS NULL))
);
CREATE INDEX audit_by_workspace ON audit (workspace_id, id);
REVOKE UPDATE, DELETE, TRUNCATE ON audit FROM gateway_app;

-- A change that was begun. The row goes in the transaction that writes the audit row; what stays behind becomes an audit
-- row whose outcome is unknown.
CREATE TABLE audit_intents (
    id           uuid PRIMARY KEY,
    operator     text        NOT NULL,
    workspace_id uuid,
    request_id   uuid        NOT NULL,
    method       text        NOT NULL,
    route        text        NOT NULL,
    path         text        NOT NULL,
    before       jsonb,
    created_at   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX audit_intents_by_age ON audit_intents (created_at);

-- GCRA: the theoretical arrival time of the next request. Lost in a crash of the database, which forgives a minute.
CREATE UNLOGGED TABLE rate_limits (
    key     text PRIMARY KEY,
    tat     timestamptz NOT NULL,
    -- What the last statement decided; RETURNING has no other way to see it.
    allowed boolean     NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
