-- +goose Up
-- +goose NO TRANSACTION

-- The lists have the filters to and outcome. CONCURRENTLY does not block the writes of running services. If it is
-- interrupted, it leaves an invalid index, which the next run of this file drops.
DROP INDEX CONCURRENTLY IF EXISTS call_requests_by_number;
CREATE INDEX CONCURRENTLY call_requests_by_number ON call_requests (workspace_id, to_e164, status, uuid_send(id));
DROP INDEX CONCURRENTLY IF EXISTS calls_by_number;
CREATE INDEX CONCURRENTLY calls_by_number ON calls (workspace_id, to_e164, direction, list_status, uuid_send(id));
DROP INDEX CONCURRENTLY IF EXISTS calls_by_outcome;
CREATE INDEX CONCURRENTLY calls_by_outcome ON calls (workspace_id, outcome, direction, list_status, uuid_send(id))
    WHERE outcome IS NOT NULL;
