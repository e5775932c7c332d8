-- +goose Up
-- Records that were parked and have not been replayed. While a key has a row here, later records of the
-- key are parked as well.
CREATE TABLE dead_letters (
    consumer  text        NOT NULL,
    topic     text        NOT NULL,
    event_id  uuid        NOT NULL,
    key       bytea       NOT NULL,
    key_hash  bytea       NOT NULL GENERATED ALWAYS AS (sha256(key)) STORED,
    error     text        NOT NULL,
    parked_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, topic, event_id)
);
CREATE INDEX dead_letters_key ON dead_letters (consumer, topic, key_hash);

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

-- Ids of events that were applied or parked, by the day of the event's own time. inbox_drop_days drops
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

-- +goose StatementBegin
DO $$
DECLARE
    app text := current_schema() || '_app';
    -- The functions run with the rights of the owner. %I is the schema.
    create_days text := $function$
        CREATE FUNCTION inbox_create_days() RETURNS void LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = %I, pg_temp SET lock_timeout = '1s' AS $body$
        DECLARE
            today date := (now() AT TIME ZONE 'UTC')::date;
            day   date;
            name  text;
        BEGIN
            -- One replica at a time. ATTACH PARTITION takes the same lock, and readers do not prevent it.
            LOCK TABLE ONLY inbox_events IN SHARE UPDATE EXCLUSIVE MODE;
            FOR offset_days IN -8 .. 3 LOOP
                day := today + offset_days;
                name := 'inbox_events_' || to_char(day, 'YYYYMMDD');
                IF to_regclass(name) IS NULL THEN
                    EXECUTE format('CREATE TABLE %%I (LIKE inbox_events INCLUDING ALL)', name);
                    EXECUTE format('ALTER TABLE inbox_events ATTACH PARTITION %%I FOR VALUES FROM (%%L) TO (%%L)',
                        name, day, day + 1);
                END IF;
            END LOOP;
        END $body$ $function$;
    drop_days text := $function$
        CREATE FUNCTION inbox_drop_days() RETURNS integer LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = %I, pg_temp SET lock_timeout = '1s' AS $body$
        DECLARE
            today   date := (now() AT TIME ZONE 'UTC')::date;
            name    text;
            dropped integer := 0;
        BEGIN
            FOR name IN
                SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                WHERE i.inhparent = 'inbox_events'::regclass
                  AND c.relname < 'inbox_events_' || to_char(today - 9, 'YYYYMMDD')
                ORDER BY 1
            LOOP
                BEGIN
                    EXECUTE format('DROP TABLE IF EXISTS %%I', name);
                    dropped := dropped + 1;
                EXCEPTION WHEN lock_not_available THEN
                    EXIT; -- a long transaction reads inbox_events
                END;
            END LOOP;
            RETURN dropped;
        END $body$ $function$;
BEGIN
    EXECUTE format(create_days, current_schema());
    EXECUTE format(drop_days, current_schema());
    REVOKE ALL ON FUNCTION inbox_create_days(), inbox_drop_days() FROM PUBLIC;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = app) THEN
        EXECUTE format('GRANT EXECUTE ON FUNCTION inbox_create_days(), inbox_drop_days() TO %I', app);
    END IF;
END $$;
-- +goose StatementEnd

COMMENT ON FUNCTION inbox_create_days() IS
    'Creates the partitions of inbox_events from 8 days ago to 3 days ahead. Kafka keeps records for 7 days.';
COMMENT ON FUNCTION inbox_drop_days() IS
    'Drops the partitions of inbox_events of 10 days ago and earlier, as far as no other transaction reads them. '
    'Returns their number. New events of 9 days ago are stored in inbox_late_events.';

SELECT inbox_create_days();
