-- +goose Up
CREATE INDEX sip_calls_of_trunk ON sip_calls (trunk_id) WHERE ended_at IS NULL;

-- trunk_has_channel reports whether the trunk has fewer live calls than channels. The transaction holds the lock of the trunk
-- until its end, so two transactions cannot take the same channel. The function is volatile: its count reads
-- what was committed before it received the lock.
-- +goose StatementBegin
CREATE FUNCTION trunk_has_channel(trunk uuid, channels integer) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(current_schema() || ' trunk ' || trunk, 0));
    RETURN (SELECT count(*) < channels FROM (
        SELECT FROM sip_calls WHERE trunk_id = trunk AND ended_at IS NULL LIMIT channels) AS live);
END $$;
-- +goose StatementEnd
