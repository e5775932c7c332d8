-- +goose Up
-- inbox_rotate_days waited for a lock that every reader of inbox_events prevents, and a start waited with it.
-- Creating days needs no such lock.
DROP FUNCTION inbox_rotate_days();

-- +goose StatementBegin
DO $$
DECLARE
    -- The functions run with the rights of the owner. %I is the schema.
    create_days text := $function$
        CREATE FUNCTION inbox_create_days() RETURNS void LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = %I, pg_temp SET lock_timeout = '1s' AS $body$
        DECLARE
            today date := (now() AT TIME ZONE 'UTC')::date;
            day   date;
            name  text;
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
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = current_schema() || '_app') THEN
        EXECUTE format('GRANT EXECUTE ON FUNCTION inbox_create_days(), inbox_drop_days() TO %I', current_schema() || '_app');
    END IF;
END $$;
-- +goose StatementEnd

COMMENT ON FUNCTION inbox_create_days() IS
    'Creates the partitions of inbox_events from 8 days ago to 3 days ahead. Kafka keeps records for 7 days.';
COMMENT ON FUNCTION inbox_drop_days() IS
    'Drops the partitions of inbox_events of 10 days ago and earlier, as far as no other transaction reads them. '
    'Returns their number. New events of 9 days ago are stored in inbox_late_events.';
