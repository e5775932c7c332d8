-- +goose Up

-- Set when the person of the call was erased (contract.md, part 10). Of a delivery it says that what is sent, or would be sent again, is not what was
-- sent before; a body with it holds nothing of the person, and is empty once nobody waits for it.
ALTER TABLE webhook_event ADD COLUMN erased_at timestamptz;
ALTER TABLE webhook_delivery ADD COLUMN erased_at timestamptz;

-- Those that somebody still waited for when they were erased.
CREATE INDEX webhook_event_erased ON webhook_event (id) WHERE erased_at IS NOT NULL AND body <> '';

-- The running role may change no body and no attempt but through these three, which only take away and leave their mark.

-- +goose StatementBegin
CREATE FUNCTION webhook_erase_body(event uuid, created timestamptz, stripped bytea) RETURNS void LANGUAGE sql SECURITY DEFINER
SET search_path = webhook_dispatcher, pg_temp AS $$
    UPDATE webhook_event SET body = stripped, erased_at = coalesce(erased_at, now())
    WHERE id = event AND created_at = created
$$;
-- +goose StatementEnd

-- What an endpoint answered may repeat what it was sent.
-- +goose StatementBegin
CREATE FUNCTION webhook_erase_excerpts(deliveries uuid[]) RETURNS void LANGUAGE sql SECURITY DEFINER
SET search_path = webhook_dispatcher, pg_temp AS $$
    UPDATE webhook_attempt SET excerpt = NULL WHERE delivery_id = ANY (deliveries) AND excerpt IS NOT NULL
$$;
-- +goose StatementEnd

-- Empties up to most erased bodies that nobody waits for any more, and says how many.
-- +goose StatementBegin
CREATE FUNCTION webhook_empty_bodies(most integer) RETURNS bigint LANGUAGE sql SECURITY DEFINER
SET search_path = webhook_dispatcher, pg_temp AS $$
    WITH over AS (
        SELECT e.id, e.created_at FROM webhook_event e
        WHERE e.erased_at IS NOT NULL AND e.body <> '' AND NOT EXISTS (
            SELECT FROM webhook_delivery d JOIN webhook_queue q ON q.delivery_id = d.id
            WHERE d.call_id = e.call_id AND d.event_id = e.id)
        LIMIT most
    ), emptied AS (
        UPDATE webhook_event e SET body = '' FROM over WHERE e.id = over.id AND e.created_at = over.created_at RETURNING 1
    )
    SELECT count(*) FROM emptied
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION webhook_erase_body(uuid, timestamptz, bytea), webhook_erase_excerpts(uuid[]), webhook_empty_bodies(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION webhook_erase_body(uuid, timestamptz, bytea), webhook_erase_excerpts(uuid[]), webhook_empty_bodies(integer) TO webhook_dispatcher_app;
