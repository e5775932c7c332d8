-- +goose Up

-- For how many days a workspace wants its requests and calls, and what was said in them, kept; null: as long as the service is set to.
ALTER TABLE workspaces ADD COLUMN keep_calls_days int, ADD COLUMN keep_transcripts_days int;

-- What goes first.
CREATE INDEX calls_with_transcript ON calls (workspace_id, ended_at) WHERE transcript IS NOT NULL;
