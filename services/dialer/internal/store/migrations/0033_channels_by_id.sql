-- +goose NO TRANSACTION
-- +goose Up

-- Ids of calls contain the time. Legs that ended are in the index until vacuum removes them, and a transaction
-- with an old snapshot prevents that.
DROP INDEX CONCURRENTLY IF EXISTS sip_calls_of_trunk_by_id;
CREATE INDEX CONCURRENTLY sip_calls_of_trunk_by_id ON sip_calls (trunk_id, call_id) WHERE ended_at IS NULL;

-- As before, but a count reads no leg that began more than six hours ago. No call takes that long.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION trunk_has_channel(trunk uuid, channels integer) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    oldest uuid := (lpad(to_hex(floor(extract(epoch FROM now() - interval '6 hours') * 1000)::bigint), 12, '0')
        || '70000000000000000000')::uuid;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(current_schema() || ' trunk ' || trunk, 0));
    RETURN (SELECT count(*) < channels FROM (
        SELECT FROM sip_calls WHERE trunk_id = trunk AND call_id > oldest AND ended_at IS NULL LIMIT channels) AS live);
END $$;
-- +goose StatementEnd

DROP INDEX CONCURRENTLY IF EXISTS sip_calls_of_trunk;
