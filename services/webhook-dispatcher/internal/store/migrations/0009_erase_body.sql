-- +goose Up

-- Returns an event body without some members of its data object: those in removed are deleted, and
-- those in nulled become null if they exist. A body that has none of them is returned unchanged. A
-- body that cannot be read becomes empty.
-- +goose StatementBegin
CREATE FUNCTION webhook_stripped_body(body bytea, removed text[], nulled text[]) RETURNS bytea LANGUAGE plpgsql IMMUTABLE
SET search_path = webhook_dispatcher, pg_temp AS $$
DECLARE
    envelope jsonb;
    data     jsonb;
    name     text;
BEGIN
    envelope := convert_from(body, 'UTF8')::jsonb;
    IF jsonb_typeof(envelope) IS DISTINCT FROM 'object' OR jsonb_typeof(envelope -> 'data') IS DISTINCT FROM 'object' THEN
        RETURN '';
    END IF;
    data := (envelope -> 'data') - removed;
    FOREACH name IN ARRAY nulled LOOP
        IF data ? name THEN
            data := jsonb_set(data, ARRAY[name], 'null');
        END IF;
    END LOOP;
    IF data = envelope -> 'data' THEN
        RETURN body;
    END IF;
    RETURN convert_to(jsonb_set(envelope, '{data}', data)::text, 'UTF8');
EXCEPTION WHEN data_exception THEN -- not UTF-8, not JSON, or JSON that jsonb cannot hold
    RETURN '';
END $$;
-- +goose StatementEnd

-- Erases a body. If keep is true, a delivery still waits for the body: only the named members are
-- taken away. The running role cannot put anything into a body.
-- +goose StatementBegin
CREATE FUNCTION webhook_erase_body(event uuid, created timestamptz, keep boolean, removed text[], nulled text[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = webhook_dispatcher, pg_temp AS $$
    UPDATE webhook_event SET body = CASE WHEN keep THEN webhook_stripped_body(body, removed, nulled) ELSE '' END,
        erased_at = coalesce(erased_at, now())
    WHERE id = event AND created_at = created
$$;
-- +goose StatementEnd

-- Replicas of the previous version call this function with a body of their own. Of that body, only
-- whether it is empty counts. A later version can drop the function.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION webhook_erase_body(event uuid, created timestamptz, stripped bytea) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = webhook_dispatcher, pg_temp AS $$
    SELECT webhook_erase_body(event, created, stripped <> '', '{transcript,recording_url}', '{summary}')
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION webhook_stripped_body(bytea, text[], text[]),
    webhook_erase_body(uuid, timestamptz, boolean, text[], text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION webhook_erase_body(uuid, timestamptz, boolean, text[], text[]) TO webhook_dispatcher_app;
