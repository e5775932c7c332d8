-- +goose Up
-- +goose NO TRANSACTION

-- The statistics count ended calls, and read this index only. A call enters the index when its
-- terminal event is published, so an ordinary change of a call does not change the index.
DROP INDEX CONCURRENTLY IF EXISTS calls_statistics;
CREATE INDEX CONCURRENTLY calls_statistics ON calls (workspace_id, uuid_send(id))
    INCLUDE (id, direction, agent_id, status, outcome, answered_at, talk_seconds, credits_micro) WHERE closed;
