-- +goose Up

-- database_timeline returns the system identifier and the timeline of the Postgres server. They change when a
-- standby is promoted and when a backup is restored to a point in time, but not when a server restarts.
-- +goose StatementBegin
CREATE FUNCTION database_timeline() RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT system_identifier FROM pg_control_system()) || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8);
END
$$;
-- +goose StatementEnd

-- The timelines on which this database has run, with the time at which a replica first saw each of them. On a new
-- timeline, the newest commits of the previous one can be missing.
CREATE TABLE database_timelines (
    timeline text        PRIMARY KEY,
    seen_at  timestamptz NOT NULL DEFAULT now()
);
INSERT INTO database_timelines (timeline, seen_at) VALUES (database_timeline(), '-infinity');

-- timeline is the timeline of the newest position. restart is the newest position of the previous timeline: events
-- that a client received at later positions can have other positions now. Both are null until the next event.
ALTER TABLE stream_heads ADD COLUMN timeline text, ADD COLUMN restart bigint;
