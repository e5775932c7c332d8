-- +goose Up

-- check_carrier also refuses the SIP carrier if the mode of the workspace is not known: the row of the
-- workspace has not arrived.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION check_carrier() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.trunk = 'test') <> coalesce((SELECT w.test FROM dial_queue q JOIN workspaces w USING (workspace_id)
            WHERE q.call_request_id = NEW.call_request_id), true)
        AND EXISTS (SELECT FROM reconciled_servers r WHERE r.server = server_identity()) THEN
        RAISE EXCEPTION 'carrier % does not place calls of this workspace', NEW.trunk USING ERRCODE = 'lock_not_available';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
