-- +goose Up

-- The position of the newest event of each workspace. An ingest updates the row last, so the row is
-- locked until the commit. Positions therefore become visible in ascending order.
CREATE TABLE stream_heads (
    workspace_id uuid PRIMARY KEY,
    position     bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500);

-- The order of the events of each workspace. The table belongs to the history. It has one partition
-- for each UTC day of the ingest, which is dropped together with the partitions of the other tables
-- for that day. The body is in events.
CREATE TABLE stream_events (
    workspace_id     uuid NOT NULL,
    position         bigint NOT NULL,
    ingested_at      timestamptz NOT NULL,
    event_id         uuid NOT NULL,
    event_created_at timestamptz NOT NULL,
    type             text NOT NULL,
    PRIMARY KEY (workspace_id, position, ingested_at)
) PARTITION BY RANGE (ingested_at);
CREATE TABLE stream_events_default PARTITION OF stream_events DEFAULT;
-- A client resumes after an event id.
CREATE INDEX stream_events_event ON stream_events (event_id);
REVOKE UPDATE, TRUNCATE ON stream_events FROM webhook_dispatcher_app;
REVOKE ALL ON stream_events_default FROM webhook_dispatcher_app;

-- The open streams of all replicas, for the limit of a workspace. A replica moves expires_at
-- forward. After a crash of the database the table is empty, and the replicas insert their rows
-- again.
CREATE UNLOGGED TABLE open_streams (
    id           uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    expires_at   timestamptz NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX open_streams_workspace ON open_streams (workspace_id);

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION partition_column(parent text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    CASE parent
        WHEN 'events', 'deliveries' THEN RETURN 'created_at';
        WHEN 'attempts' THEN RETURN 'at';
        WHEN 'stream_events' THEN RETURN 'ingested_at';
        ELSE RAISE EXCEPTION '% is not a table of the history', parent USING ERRCODE = 'invalid_parameter_value';
    END CASE;
END $$;
-- +goose StatementEnd
