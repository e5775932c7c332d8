-- +goose Up
-- How far each partition has been applied. A row changes in the transaction that applies the records.
CREATE TABLE inbox_positions (
    consumer    text    NOT NULL,
    topic       text    NOT NULL,
    partition   integer NOT NULL,
    -- Kafka's id of the topic. A topic that was deleted and created again has another id, and its offsets
    -- start at 0 again.
    topic_id    uuid    NOT NULL,
    next_offset bigint  NOT NULL CHECK (next_offset >= 0),
    PRIMARY KEY (consumer, topic, partition)
) WITH (
    fillfactor = 20, -- room for updates within the page
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000
);

-- Ids of events that were applied or parked, by the day of the event's own time. inbox_rotate_days drops
-- whole days.
CREATE TABLE inbox_events (
    consumer  text NOT NULL,
    topic     text NOT NULL,
    event_id  uuid NOT NULL,
    event_day date NOT NULL, -- in UTC
    PRIMARY KEY (consumer, topic, event_id, event_day)
) PARTITION BY RANGE (event_day);

-- Ids of events that are older than the oldest day of inbox_events, and of dead letters that were
-- replayed. They are deleted after 31 days; the DLQ keeps a record for 30.
CREATE TABLE inbox_late_events (
    consumer    text        NOT NULL,
    topic       text        NOT NULL,
    event_id    uuid        NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, topic, event_id)
);
CREATE INDEX inbox_late_events_received_at ON inbox_late_events (received_at);

-- Rolling upgrade. Replicas of the release before know no positions. They start at the offsets that
-- the consumer group committed, and find what was applied in the table inbox. Until old_release_until
-- and one hour longer, this release stores its event ids in inbox as well, so that both releases find
-- each other's. From old_release_until on, replicas of the old release can no longer apply records.
-- If inbox is empty, no old replica has applied anything and there is nothing to wait for.
CREATE TABLE inbox_upgrade (
    id                smallint    PRIMARY KEY DEFAULT 1 CHECK (id = 1),
    old_release_until timestamptz NOT NULL
);
-- Set by this release only.
ALTER TABLE inbox ADD COLUMN has_position boolean;

-- +goose StatementBegin
CREATE FUNCTION inbox_refuse_old_release() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'this release is too old: a newer one keeps positions in inbox_positions';
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $$
DECLARE
    until timestamptz := CASE WHEN EXISTS (SELECT FROM inbox) THEN now() + interval '3 days' ELSE '-infinity' END;
BEGIN
    INSERT INTO inbox_upgrade (old_release_until) VALUES (until);
    EXECUTE format('CREATE TRIGGER inbox_old_release BEFORE INSERT ON inbox FOR EACH ROW
        WHEN (NEW.has_position IS NULL AND clock_timestamp() > %L::timestamptz)
        EXECUTE FUNCTION inbox_refuse_old_release()', until);

    -- Creates the partitions of inbox_events from 8 days ago to 3 days ahead and drops older ones. Returns
    -- the number of dropped partitions. Kafka keeps records for 7 days.
    EXECUTE format($function$
        CREATE FUNCTION inbox_rotate_days() RETURNS integer LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = %I, pg_temp SET lock_timeout = '1s' AS $body$
        DECLARE
            today   date := (now() AT TIME ZONE 'UTC')::date;
            day     date;
            name    text;
            dropped integer := 0;
        BEGIN
            PERFORM FROM inbox_upgrade FOR UPDATE; -- one replica at a time
            FOR offset_days IN -8 .. 3 LOOP
                day := today + offset_days;
                name := 'inbox_events_' || to_char(day, 'YYYYMMDD');
                IF to_regclass(name) IS NULL THEN
                    EXECUTE format('CREATE TABLE %%I (LIKE inbox_events INCLUDING ALL)', name);
                    EXECUTE format('ALTER TABLE inbox_events ATTACH PARTITION %%I FOR VALUES FROM (%%L) TO (%%L)',
                        name, day, day + 1);
                END IF;
            END LOOP;
            FOR name IN
                SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                WHERE i.inhparent = 'inbox_events'::regclass
                  AND c.relname < 'inbox_events_' || to_char(today - 8, 'YYYYMMDD')
            LOOP
                EXECUTE format('DROP TABLE %%I', name);
                dropped := dropped + 1;
            END LOOP;
            RETURN dropped;
        END $body$ $function$, current_schema());
    REVOKE ALL ON FUNCTION inbox_rotate_days() FROM PUBLIC;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = current_schema() || '_app') THEN
        EXECUTE format('GRANT EXECUTE ON FUNCTION inbox_rotate_days() TO %I', current_schema() || '_app');
        EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON inbox_upgrade FROM %I', current_schema() || '_app');
    END IF;
END $$;
-- +goose StatementEnd

SELECT inbox_rotate_days();
