-- +goose Up
-- The relay that publishes the outbox holds this lease. An advisory lock would be shared by all schemas
-- of the database: the role of another service could take it and stop this outbox.
CREATE TABLE outbox_leases (
    id         smallint    PRIMARY KEY DEFAULT 1 CHECK (id = 1),
    -- The relay that acquired the lease last.
    holder     uuid,
    -- Rises with each acquisition.
    fence      bigint      NOT NULL DEFAULT 0,
    expires_at timestamptz NOT NULL DEFAULT '-infinity'
);
INSERT INTO outbox_leases DEFAULT VALUES;

-- The running role changes the row and nothing else.
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = current_schema() || '_app') THEN
        EXECUTE format('REVOKE INSERT, DELETE, TRUNCATE ON outbox_leases FROM %I', current_schema() || '_app');
    END IF;
END
$$;
-- +goose StatementEnd
