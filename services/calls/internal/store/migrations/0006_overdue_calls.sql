-- +goose Up
-- +goose NO TRANSACTION

-- When call_overdue was last published for this call.
ALTER TABLE calls ADD COLUMN IF NOT EXISTS end_requested_at timestamptz;
-- A call is in this index until it ends. The job that searches for overdue calls reads only this index.
DROP INDEX CONCURRENTLY IF EXISTS calls_live;
CREATE INDEX CONCURRENTLY calls_live ON calls (id) WHERE list_status = 'live';
