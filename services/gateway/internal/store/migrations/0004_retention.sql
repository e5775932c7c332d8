-- +goose Up
-- For how many days what is kept: {"calls_days": n, "transcripts_days": n, "webhooks_days": n}, each optional.
ALTER TABLE workspaces ADD COLUMN retention jsonb NOT NULL DEFAULT '{}';
