-- +goose Up

-- These functions hold an ACCESS EXCLUSIVE lock on history. They find the rows that are still
-- needed through webhook_queue_created, and their plans may not scan a whole table instead.

-- The condition that row o of the history is still needed, because its delivery is open. Attempts
-- are never needed.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION webhook_history_open(parent text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE parent
        WHEN 'webhook_event' THEN 'EXISTS (SELECT FROM webhook_queue q WHERE q.created_at = o.created_at AND q.event_id = o.id)'
        WHEN 'webhook_delivery' THEN 'EXISTS (SELECT FROM webhook_queue q WHERE q.delivery_id = o.id AND q.created_at = o.created_at)'
        ELSE 'false' END
$$;
-- +goose StatementEnd

-- The ids of the rows of one day that are still needed: $1 is its begin, $2 the begin of the next.
-- +goose StatementBegin
CREATE FUNCTION webhook_history_open_ids(parent text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE parent
        WHEN 'webhook_event' THEN 'SELECT q.event_id FROM webhook_queue q WHERE q.created_at >= $1 AND q.created_at < $2'
        WHEN 'webhook_delivery' THEN 'SELECT q.delivery_id FROM webhook_queue q WHERE q.created_at >= $1 AND q.created_at < $2'
        END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION webhook_history_open_ids(text) FROM PUBLIC;

-- Drops the oldest day before the given one and returns it; null if there is none. Rows that are
-- still needed move to the default partition.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION webhook_drop_day(parent text, before date) RETURNS date LANGUAGE plpgsql SECURITY DEFINER
SET search_path = webhook_dispatcher, pg_temp SET lock_timeout = '1s'
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    day date;
BEGIN
    PERFORM webhook_history_key(parent); -- refuses other tables
    PERFORM pg_advisory_xact_lock(hashtextextended('webhook_dispatcher history', 0));
    SELECT min(to_date(right(c.relname, 8), 'YYYYMMDD')) INTO day
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = to_regclass(parent) AND c.relname ~ '_[0-9]{8}$';
    IF day IS NULL OR day >= before THEN
        RETURN NULL;
    END IF;
    EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', parent);
    EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', parent, webhook_history_day(parent, day));
    IF webhook_history_open_ids(parent) IS NOT NULL THEN
        EXECUTE format('INSERT INTO %I SELECT o.* FROM %I o WHERE o.id = ANY (ARRAY(%s)) AND %s', parent,
                       webhook_history_day(parent, day), webhook_history_open_ids(parent), webhook_history_open(parent))
        USING day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC';
    END IF;
    EXECUTE format('DROP TABLE %I', webhook_history_day(parent, day));
    RETURN day;
END $$;
-- +goose StatementEnd

ALTER FUNCTION webhook_renew_rest(text, timestamptz, date[]) SET enable_seqscan = off;
ALTER FUNCTION webhook_drop_rest(text, date) SET enable_seqscan = off;
