-- +goose Up

-- Calls of a test workspace use the simulated carrier. The mode of a workspace never changes.
ALTER TABLE workspaces ADD COLUMN test boolean NOT NULL DEFAULT false;

-- True if the call is at the simulated carrier of the test workspaces.
ALTER TABLE calls ADD COLUMN test boolean NOT NULL DEFAULT false;
ALTER TABLE orphaned_calls ADD COLUMN test boolean NOT NULL DEFAULT false;

-- check_carrier refuses a fence whose carrier does not fit the mode of the workspace. A dialer of an
-- earlier version does not read the mode, and would call a phone. It treats this SQLSTATE as a lost
-- claim, so the request stays queued. The reconciliation restores every fence that was committed or
-- intended, and runs before the server counts as reconciled.
-- +goose StatementBegin
CREATE FUNCTION check_carrier() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.trunk = 'test') <> coalesce((SELECT w.test FROM dial_queue q JOIN workspaces w USING (workspace_id)
            WHERE q.call_request_id = NEW.call_request_id), NEW.trunk = 'test')
        AND EXISTS (SELECT FROM reconciled_servers r WHERE r.server = server_identity()) THEN
        RAISE EXCEPTION 'carrier % does not place calls of this workspace', NEW.trunk USING ERRCODE = 'lock_not_available';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER fences_carrier BEFORE INSERT ON fences FOR EACH ROW
    WHEN (NEW.trunk IN ('sip', 'test')) EXECUTE FUNCTION check_carrier();

-- skip_other_mode stores no inbound call whose carrier does not fit the mode of the workspace. The
-- dialer hangs up a call without a row.
-- +goose StatementBegin
CREATE FUNCTION skip_other_mode() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.test <> coalesce((SELECT w.test FROM workspaces w WHERE w.workspace_id = NEW.workspace_id), false) THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER calls_inbound_mode BEFORE INSERT ON calls FOR EACH ROW
    WHEN (NEW.direction = 'inbound') EXECUTE FUNCTION skip_other_mode();
