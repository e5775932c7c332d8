-- +goose Up

-- Whether the workspace has the webhooks feature. A workspace that is stored already is assumed to
-- have it until its next version arrives.
ALTER TABLE workspace ADD COLUMN webhooks_enabled boolean NOT NULL DEFAULT true;

-- True while the queued deliveries of the workspace are not sent.
ALTER TABLE workspace ADD COLUMN deliveries_held boolean NOT NULL
    GENERATED ALWAYS AS (suspended OR NOT webhooks_enabled) STORED;
