-- +goose Up

-- What was said is kept and shown, and recordings are shown, where the workspace wants it. What was stored of others before was never shown, and goes.
ALTER TABLE workspaces ADD COLUMN transcripts boolean NOT NULL DEFAULT false, ADD COLUMN recordings boolean NOT NULL DEFAULT false;
UPDATE calls SET transcript = NULL WHERE transcript IS NOT NULL;

-- Where the call's recording lies, as the dialer tells.
ALTER TABLE calls ADD COLUMN recording_key text;
ALTER TABLE calls ADD CHECK (erased_at IS NULL OR recording_key IS NULL);
