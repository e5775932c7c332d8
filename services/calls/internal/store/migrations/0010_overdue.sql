-- +goose NO TRANSACTION
-- +goose Up
-- Requests that republishing looks at.
DROP INDEX CONCURRENTLY IF EXISTS call_requests_open;
CREATE INDEX CONCURRENTLY call_requests_open ON call_requests (scheduled_for) WHERE status IN ('queued', 'dialing');
DROP INDEX CONCURRENTLY IF EXISTS call_requests_queued;
