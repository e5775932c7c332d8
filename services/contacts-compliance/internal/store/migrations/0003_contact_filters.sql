-- +goose Up
-- +goose NO TRANSACTION

-- The list of contacts has the filters email and external_id. CONCURRENTLY does not block the writes of running
-- services. If it is interrupted, it leaves an invalid index, which the next run of this file drops.
DROP INDEX CONCURRENTLY IF EXISTS contacts_email;
CREATE INDEX CONCURRENTLY contacts_email
    ON contacts (workspace_id, email, dnd_status, consent_status, uuid_send(id)) WHERE email IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS contacts_external_id;
CREATE INDEX CONCURRENTLY contacts_external_id
    ON contacts (workspace_id, external_id, dnd_status, consent_status, uuid_send(id)) WHERE external_id IS NOT NULL;
