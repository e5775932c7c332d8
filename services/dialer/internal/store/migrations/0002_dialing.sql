-- +goose Up

-- The last change of dialing for each scope: everything (id is the zero UUID), a workspace, an agent
-- or a trunk. A scope without a row is active.
CREATE TABLE dialing_states (
    level       text        NOT NULL CHECK (level IN ('everything', 'workspace', 'agent', 'trunk')),
    id          uuid        NOT NULL,
    paused      boolean     NOT NULL,
    reason      text        NOT NULL,
    until       timestamptz,          -- when the pause ends by itself; null: it does not
    actor_type  text        NOT NULL CHECK (actor_type IN ('operator', 'api_key')),
    actor_id    uuid,                 -- the API key; null: not known, or an operator
    actor_name  text        NOT NULL, -- the operator; '': an API key
    set_at      timestamptz NOT NULL,
    PRIMARY KEY (level, id),
    CHECK (until IS NULL OR paused)
);

-- The periods in which dialing of a scope was or is paused. The periods of a scope do not overlap. A
-- pause without an end has ends_at 'infinity'.
CREATE TABLE dialing_pauses (
    level    text        NOT NULL CHECK (level IN ('everything', 'workspace', 'agent', 'trunk')),
    id       uuid        NOT NULL,
    began_at timestamptz NOT NULL,
    ends_at  timestamptz NOT NULL,
    PRIMARY KEY (level, id, began_at),
    CHECK (ends_at >= began_at)
);
-- Every claim reads the pauses that have not ended.
CREATE INDEX dialing_pauses_by_end ON dialing_pauses (level, ends_at) INCLUDE (id);

-- paused_time returns for how long dialing of a request was paused since a time. Overlapping pauses of
-- different levels count once. A paused trunk does not count, because other trunks can carry the call.
-- +goose StatementBegin
CREATE FUNCTION paused_time(workspace uuid, agent uuid, since timestamptz) RETURNS interval LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT coalesce(sum(upper(r.period) - lower(r.period)), interval '0') FROM unnest((
        SELECT range_agg(tstzrange(greatest(p.began_at, since), least(p.ends_at, now())))
        FROM (VALUES ('everything', '00000000-0000-0000-0000-000000000000'::uuid), ('workspace', workspace), ('agent', agent)) AS s (level, id)
        JOIN dialing_pauses p ON p.level = s.level AND p.id = s.id
        WHERE since < now() AND p.began_at < now() AND p.ends_at > since
    )) AS r (period));
END $$;
-- +goose StatementEnd

-- When the age limit of a queued request is checked next. Null: when the request is older than the
-- limit. The check sets it, because the time of pauses does not count.
ALTER TABLE dial_queue ADD COLUMN expire_at timestamptz;

-- Who requested the hang-up of a call, and when. Null: no client and no operator requested it.
ALTER TABLE calls ADD COLUMN hangup_requested_at timestamptz, ADD COLUMN hangup_requested_by text;
