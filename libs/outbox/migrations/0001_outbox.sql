-- +goose Up
CREATE TABLE outbox (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id   uuid        NOT NULL,
    topic      text        NOT NULL CHECK (topic <> ''),
    key        bytea       NOT NULL,
    headers    jsonb       NOT NULL,
    payload    bytea,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- A row that the broker refuses would stand in the relay's way for ever: it fails in the transaction that writes it.
    CONSTRAINT outbox_payload_size CHECK (octet_length(payload) <= 921600),
    CONSTRAINT outbox_headers_size CHECK (octet_length(headers::text) + octet_length(key) <= 32768)
) WITH (
    -- A queue: vacuum by count, at once, at full speed.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

-- Rows are written once and deleted once.
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = current_schema() || '_app') THEN
        EXECUTE format('REVOKE UPDATE ON outbox FROM %I', current_schema() || '_app');
    END IF;
END
$$;
-- +goose StatementEnd
