-- +goose Up

-- GET /v1/audit returns the actor and the object of each entry. Entries of earlier versions have NULL.
-- In an entry of an API key, operator is the empty string.
ALTER TABLE audit_entries
    ADD COLUMN actor_type text CHECK (actor_type IN ('api_key', 'operator', 'user')),
    -- The id of the API key or of the person, or the name of the operator.
    ADD COLUMN actor_id text,
    ADD COLUMN actor_name text,
    -- The type of the object and a verb, for example contact.update.
    ADD COLUMN action text,
    ADD COLUMN object_type text,
    ADD COLUMN object_id text;
ALTER TABLE audit_intents
    ADD COLUMN actor_type text,
    ADD COLUMN actor_id text,
    ADD COLUMN actor_name text,
    ADD COLUMN action text,
    ADD COLUMN object_type text,
    ADD COLUMN object_id text;
