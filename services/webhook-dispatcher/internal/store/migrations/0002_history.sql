-- +goose Up

-- A replay makes work again of a delivery that ended: its attempts count from 1 once more, and what a process still knows of the
-- attempts before the replay settles nothing.
ALTER TABLE webhook_delivery ADD COLUMN replays int NOT NULL DEFAULT 0 CHECK (replays >= 0);
ALTER TABLE webhook_attempt ADD COLUMN replay int NOT NULL DEFAULT 0 CHECK (replay >= 0);
ALTER TABLE webhook_queue ADD COLUMN replay int NOT NULL DEFAULT 0 CHECK (replay >= 0);

-- What operators look for: a call's deliveries, and the few that did not arrive, in the order of the page and in that of their end.
CREATE INDEX webhook_delivery_call ON webhook_delivery (call_id, subscription_id) WHERE call_id IS NOT NULL;
CREATE INDEX webhook_delivery_missed ON webhook_delivery (subscription_id, status, created_at DESC, id DESC) WHERE status IN ('failed', 'skipped');
CREATE INDEX webhook_delivery_ended ON webhook_delivery (subscription_id, status, done_at, id) WHERE status IN ('failed', 'skipped');

-- History and events lie in one partition for each day (UTC), <table>_<YYYYMMDD>, and in <table>_rest what no day takes: clocks ahead or
-- behind, and what was still queued when its day was dropped. Only the schema's owner may make and drop tables; the service does
-- it through the three functions below, which know these tables only, one table in one transaction. The advisory lock
-- lets replicas go one after another; whoever finds it done does nothing. lock_timeout bounds how long everybody else waits behind
-- the exclusive lock that is being waited for.

-- +goose StatementBegin
CREATE FUNCTION webhook_history_key(parent text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    CASE parent
        WHEN 'webhook_event', 'webhook_delivery' THEN RETURN 'created_at';
        WHEN 'webhook_attempt' THEN RETURN 'at';
        ELSE RAISE EXCEPTION '% is no table of history', parent USING ERRCODE = 'invalid_parameter_value';
    END CASE;
END $$;
-- +goose StatementEnd

-- What row o is still needed for, however old: open work needs its body and its row. Attempts are needed by nobody.
-- +goose StatementBegin
CREATE FUNCTION webhook_history_open(parent text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE parent
        WHEN 'webhook_event' THEN 'EXISTS (SELECT FROM webhook_queue q WHERE q.event_id = o.id AND q.created_at = o.created_at)'
        WHEN 'webhook_delivery' THEN 'EXISTS (SELECT FROM webhook_queue q WHERE q.delivery_id = o.id AND q.created_at = o.created_at)'
        ELSE 'false' END
$$;
-- +goose StatementEnd

-- The running role reaches partitions through their table, where its rights are those of the table.
-- +goose StatementBegin
CREATE FUNCTION webhook_history_day(parent text, day date) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT parent || '_' || to_char(day, 'YYYYMMDD')
$$;
-- +goose StatementEnd

-- Puts an empty default partition in place of the present one, makes the days, and puts back what is not older than keep or open.
-- +goose StatementBegin
CREATE FUNCTION webhook_renew_rest(parent text, keep timestamptz, days date[]) RETURNS void LANGUAGE plpgsql
SET search_path = webhook_dispatcher, pg_temp AS $$
DECLARE
    rest text := parent || '_rest';
    old  text := parent || '_old';
    day  date;
BEGIN
    EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', parent);
    EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', parent, rest);
    EXECUTE format('ALTER TABLE %I RENAME TO %I', rest, old);
    EXECUTE format('CREATE TABLE %I PARTITION OF %I DEFAULT', rest, parent);
    EXECUTE format('REVOKE ALL ON %I FROM webhook_dispatcher_app', rest);
    FOREACH day IN ARRAY days LOOP
        EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)', webhook_history_day(parent, day), parent,
                       day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
        EXECUTE format('REVOKE ALL ON %I FROM webhook_dispatcher_app', webhook_history_day(parent, day));
    END LOOP;
    EXECUTE format('INSERT INTO %I SELECT o.* FROM %I o WHERE o.%I >= $1 OR %s', parent, old, webhook_history_key(parent), webhook_history_open(parent))
    USING keep;
    EXECUTE format('DROP TABLE %I', old);
END $$;
-- +goose StatementEnd

-- Makes the day's partition; false when it is there. What lay in the default partition of that day moves over. Without such rows
-- nobody who reads or writes other days waits.
-- +goose StatementBegin
CREATE FUNCTION webhook_add_day(parent text, day date) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = webhook_dispatcher, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    name text := webhook_history_day(parent, day);
BEGIN
    PERFORM webhook_history_key(parent); -- refuses other tables
    PERFORM pg_advisory_xact_lock(hashtextextended('webhook_dispatcher history', 0));
    IF to_regclass(name) IS NOT NULL THEN
        RETURN false;
    END IF;
    BEGIN
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', name, parent);
        EXECUTE format('REVOKE ALL ON %I FROM webhook_dispatcher_app', name);
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, name,
                       day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
    EXCEPTION WHEN check_violation THEN -- the default partition holds rows of that day
        PERFORM webhook_renew_rest(parent, '-infinity', ARRAY[day]);
    END;
    RETURN true;
END $$;
-- +goose StatementEnd

-- Drops the oldest day before the given one and says which; null when there is none. What is still open moves to the default partition.
-- +goose StatementBegin
CREATE FUNCTION webhook_drop_day(parent text, before date) RETURNS date LANGUAGE plpgsql SECURITY DEFINER
SET search_path = webhook_dispatcher, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    day date;
BEGIN
    PERFORM webhook_history_key(parent);
    PERFORM pg_advisory_xact_lock(hashtextextended('webhook_dispatcher history', 0));
    SELECT min(to_date(right(c.relname, 8), 'YYYYMMDD')) INTO day
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = to_regclass(parent) AND c.relname ~ '_[0-9]{8}$';
    IF day IS NULL OR day >= before THEN
        RETURN NULL;
    END IF;
    EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', parent);
    EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', parent, webhook_history_day(parent, day));
    EXECUTE format('INSERT INTO %I SELECT o.* FROM %I o WHERE %s', parent, webhook_history_day(parent, day), webhook_history_open(parent));
    EXECUTE format('DROP TABLE %I', webhook_history_day(parent, day));
    RETURN day;
END $$;
-- +goose StatementEnd

-- Renews the default partition when it holds something older than the day that is not open; false when it does not.
-- +goose StatementBegin
CREATE FUNCTION webhook_drop_rest(parent text, before date) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = webhook_dispatcher, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    key     text := webhook_history_key(parent);
    since   timestamptz := before::timestamp AT TIME ZONE 'UTC';
    expired boolean;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('webhook_dispatcher history', 0));
    EXECUTE format('SELECT EXISTS (SELECT FROM %I o WHERE o.%I < $1 AND NOT %s)', parent || '_rest', key, webhook_history_open(parent))
    INTO expired USING since;
    IF expired THEN
        PERFORM webhook_renew_rest(parent, since, '{}');
    END IF;
    RETURN expired;
END $$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION webhook_history_key(text), webhook_history_open(text), webhook_history_day(text, date),
    webhook_renew_rest(text, timestamptz, date[]), webhook_add_day(text, date), webhook_drop_day(text, date), webhook_drop_rest(text, date)
FROM PUBLIC;
GRANT EXECUTE ON FUNCTION webhook_add_day(text, date), webhook_drop_day(text, date), webhook_drop_rest(text, date) TO webhook_dispatcher_app;
REVOKE ALL ON webhook_event_rest, webhook_delivery_rest, webhook_attempt_rest FROM webhook_dispatcher_app;

-- What the first migration's default partitions hold moves to its days; clocks far off stay behind.
-- +goose StatementBegin
DO $$
DECLARE
    parent text;
    days   date[];
BEGIN
    FOREACH parent IN ARRAY ARRAY['webhook_event', 'webhook_delivery', 'webhook_attempt'] LOOP
        EXECUTE format('SELECT array_agg(DISTINCT (o.%1$I AT TIME ZONE ''UTC'')::date) FROM %2$I o WHERE o.%1$I BETWEEN now() - interval ''31 days'' AND now() + interval ''3 days''',
                       webhook_history_key(parent), parent || '_rest')
        INTO days;
        IF days IS NOT NULL THEN
            PERFORM webhook_renew_rest(parent, '-infinity', days);
        END IF;
    END LOOP;
END $$;
-- +goose StatementEnd
