-- +goose Up
-- Events that are to be published to Kafka. A row is written in the transaction of the change that it
-- describes. The relay deletes it after the broker has acknowledged the record. Rows are never updated.
CREATE TABLE outbox (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id   uuid        NOT NULL,
    topic      text        NOT NULL CHECK (topic <> ''),
    key        bytea       NOT NULL,
    headers    jsonb       NOT NULL,
    payload    bytea,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- The relay publishes in order, so a row that the broker rejects would block all later rows. Such a
    -- row therefore fails in the transaction that writes it.
    CONSTRAINT outbox_payload_size CHECK (octet_length(payload) <= 921600),
    CONSTRAINT outbox_headers_size CHECK (octet_length(headers::text) + octet_length(key) <= 32768)
) WITH (
    -- A queue is vacuumed after a number of deleted rows, not after a share of the table.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

-- The relay that publishes the outbox has this lease. An advisory lock would be shared by all schemas of
-- the database: the role of another service could take it and stop this outbox.
CREATE TABLE outbox_leases (
    id         smallint    PRIMARY KEY DEFAULT 1 CHECK (id = 1),
    -- The relay that acquired the lease last.
    holder     uuid,
    -- Rises with each acquisition.
    fence      bigint      NOT NULL DEFAULT 0,
    expires_at timestamptz NOT NULL DEFAULT '-infinity',
    -- No row of outbox with a lower id exists or can still be committed (libs/outbox/floor.go).
    floor      bigint      NOT NULL DEFAULT 0
);
INSERT INTO outbox_leases DEFAULT VALUES;

-- +goose StatementBegin
DO $$
DECLARE
    app text := current_schema() || '_app';
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = app) THEN
        EXECUTE format('REVOKE UPDATE ON outbox FROM %I', app);
        EXECUTE format('REVOKE INSERT, DELETE, TRUNCATE ON outbox_leases FROM %I', app);
    END IF;
END $$;
-- +goose StatementEnd
