-- +goose Up
-- +goose NO TRANSACTION

-- The live inbound calls of a workspace. A count reads only the last ten minutes, for the reason that
-- is given at calls_inbound_live. CONCURRENTLY does not block the writes of running services. If it is
-- interrupted, it leaves an invalid index, which the next run of this file drops.
DROP INDEX CONCURRENTLY IF EXISTS calls_inbound_of_workspace;
CREATE INDEX CONCURRENTLY calls_inbound_of_workspace ON calls (workspace_id, counted_at)
    WHERE ended_at IS NULL AND direction = 'inbound';
