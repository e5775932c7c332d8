-- +goose Up

-- The dispatcher's copy of workspaces.v1: the newest version seen.
CREATE TABLE workspace (
    id         uuid PRIMARY KEY,
    version    bigint NOT NULL,
    suspended  boolean NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- What the customer set. It is locked FOR SHARE by every ingest, so nothing that changes with each attempt stands here.
CREATE TABLE webhook_subscription (
    id            uuid PRIMARY KEY,
    workspace_id  uuid NOT NULL,
    name          text NOT NULL,
    url           text NOT NULL CHECK (url LIKE 'https://%'),
    description   text NOT NULL DEFAULT '',
    events        text[] NOT NULL CHECK (cardinality(events) > 0),
    status        text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'paused', 'failed')),
    secret_sealed bytea NOT NULL,
    secret_last4  text NOT NULL,
    failed_at     timestamptz,
    failed_reason text,
    updated_at    timestamptz NOT NULL DEFAULT now(),
    -- Set by DELETE: nothing shows or sends it any more, and its history is being erased.
    deleted_at    timestamptz,
    CHECK ((status = 'failed') = (failed_at IS NOT NULL)),
    CHECK ((failed_at IS NULL) = (failed_reason IS NULL))
);
CREATE INDEX webhook_subscription_workspace ON webhook_subscription (workspace_id, id) WHERE deleted_at IS NULL;
CREATE INDEX webhook_subscription_deleted ON webhook_subscription (deleted_at) WHERE deleted_at IS NOT NULL;

-- How its attempts have gone since the last success. failures, exhausted and failing_since are of real deliveries only.
CREATE TABLE webhook_health (
    subscription_id      uuid PRIMARY KEY REFERENCES webhook_subscription ON DELETE CASCADE,
    consecutive_failures int NOT NULL DEFAULT 0 CHECK (consecutive_failures >= 0),
    failures             int NOT NULL DEFAULT 0 CHECK (failures >= 0),
    exhausted            int NOT NULL DEFAULT 0 CHECK (exhausted >= 0),
    failing_since        timestamptz,
    warned_at            timestamptz,
    last_success_at      timestamptz,
    last_failure_at      timestamptz,
    last_error           text
) WITH (fillfactor = 70);

-- The body once, however many subscriptions receive it. Partitioned by the event's own time, so that a record read again
-- after midnight meets the same row; days get partitions of their own later, until then all lies in the default one.
CREATE TABLE webhook_event (
    id           uuid NOT NULL,
    created_at   timestamptz NOT NULL,
    workspace_id uuid NOT NULL,
    call_id      uuid,
    type         text NOT NULL,
    sequence     int NOT NULL,
    body         bytea NOT NULL,
    PRIMARY KEY (id, created_at)
) PARTITION BY RANGE (created_at);
CREATE TABLE webhook_event_rest PARTITION OF webhook_event DEFAULT;
REVOKE UPDATE, TRUNCATE ON webhook_event, webhook_event_rest FROM webhook_dispatcher_app;

-- History. "held" is not stored: it is queued work whose subscription may not receive now.
CREATE TABLE webhook_delivery (
    id              uuid NOT NULL,
    created_at      timestamptz NOT NULL,
    workspace_id    uuid NOT NULL,
    subscription_id uuid NOT NULL,
    event_id        uuid NOT NULL,
    event_type      text NOT NULL,
    call_id         uuid,
    sequence        int NOT NULL,
    status          text NOT NULL CHECK (status IN ('queued', 'delivered', 'failed', 'skipped')),
    attempts        int NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    last_code       int,
    last_error      text,
    traceparent     text NOT NULL DEFAULT '',
    queued_at       timestamptz NOT NULL DEFAULT now(),
    done_at         timestamptz,
    PRIMARY KEY (id, created_at),
    CHECK ((status = 'queued') = (done_at IS NULL))
) PARTITION BY RANGE (created_at);
CREATE TABLE webhook_delivery_rest PARTITION OF webhook_delivery DEFAULT;
CREATE INDEX webhook_delivery_subscription ON webhook_delivery (subscription_id, created_at DESC, id DESC);

CREATE TABLE webhook_attempt (
    delivery_id uuid NOT NULL,
    no          int NOT NULL CHECK (no >= 1),
    at          timestamptz NOT NULL,
    ms          int NOT NULL,
    code        int,
    error       text,
    excerpt     text,
    PRIMARY KEY (delivery_id, no, at)
) PARTITION BY RANGE (at);
CREATE TABLE webhook_attempt_rest PARTITION OF webhook_attempt DEFAULT;
REVOKE UPDATE, TRUNCATE ON webhook_attempt, webhook_attempt_rest FROM webhook_dispatcher_app;

-- Open work only, so that it stays small. due_at is the lease as well: a claim moves it forward and counts the attempt.
CREATE TABLE webhook_queue (
    delivery_id     uuid PRIMARY KEY,
    created_at      timestamptz NOT NULL,
    workspace_id    uuid NOT NULL,
    subscription_id uuid NOT NULL,
    event_id        uuid NOT NULL,
    event_type      text NOT NULL,
    call_id         uuid,
    sequence        int NOT NULL,
    attempt         int NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    -- True once an attempt has failed: retries stand behind first tries and hold back nobody.
    is_retry        boolean NOT NULL DEFAULT false,
    due_at          timestamptz NOT NULL DEFAULT now(),
    -- The subscription is not active, or its workspace suspended.
    held            boolean NOT NULL DEFAULT false,
    traceparent     text NOT NULL DEFAULT '',
    queued_at       timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX webhook_queue_lane ON webhook_queue (subscription_id, is_retry, due_at, delivery_id) WHERE NOT held;
-- The order of one call's events to one subscription.
CREATE INDEX webhook_queue_call ON webhook_queue (subscription_id, call_id, sequence) WHERE NOT is_retry;
