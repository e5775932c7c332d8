-- +goose Up

-- A pause with the level 'trunk' and the zero UUID is a period in which every active trunk was paused.
-- The dialer stores it, because no call could be dialed in that time.
--
-- paused_time returns for how long dialing of a request was paused since a time. Overlapping pauses of
-- different levels count once. The pause of one trunk does not count while another trunk is active,
-- because that trunk can carry the call.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION paused_time(workspace uuid, agent uuid, since timestamptz) RETURNS interval LANGUAGE plpgsql STABLE AS $$
DECLARE
    none CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
BEGIN
    RETURN (SELECT coalesce(sum(upper(r.period) - lower(r.period)), interval '0') FROM unnest((
        SELECT range_agg(tstzrange(greatest(p.began_at, since), least(p.ends_at, now())))
        FROM (VALUES ('everything', none), ('workspace', workspace), ('agent', agent), ('trunk', none)) AS s (level, id)
        JOIN dialing_pauses p ON p.level = s.level AND p.id = s.id
        WHERE since < now() AND p.began_at < now() AND p.ends_at > since
    )) AS r (period));
END $$;
-- +goose StatementEnd
