-- +goose Up

-- The public list (README, Lists). Ordered by the key's bytes, so that the primary key, which knows no workspace, cannot serve it.
-- One index for every list: a contact that a call creates pays for no more than before.
CREATE INDEX contacts_lanes ON contacts (workspace_id, dnd_status, consent_status, uuid_send(id));
DROP INDEX contacts_newest;

-- Most contacts come from calls and have no name: they are in neither of these.
CREATE INDEX contacts_named ON contacts (workspace_id, uuid_send(id)) WHERE name_folded IS NOT NULL;

-- The pieces of one to three characters that a name has, each hashed with what every search by name is narrowed by. Built in, because
-- pg_trgm may be missing, needs a right on the database, and knows neither workspaces nor pieces of less than three.
-- +goose StatementBegin
CREATE FUNCTION name_grams(workspace uuid, dnd text, consent text, name text) RETURNS bigint[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE COST 1000 AS $$
    SELECT array_agg(DISTINCT hashtextextended(workspace::text || dnd || ' ' || consent || ' ' || substr(name, start, size), 0))
    FROM generate_series(1, length(name)) AS start, generate_series(1, 3) AS size
    WHERE start + size - 1 <= length(name)
$$;
-- +goose StatementEnd
CREATE INDEX contacts_name_grams ON contacts USING gin (name_grams(workspace_id, dnd_status, consent_status, name_folded))
    WITH (gin_pending_list_limit = 256) WHERE name_folded IS NOT NULL;
