-- +goose Up
-- When the person wants to be called back, as the agent's tool said; the analysis, which follows the end, tells it.
ALTER TABLE sip_calls ADD COLUMN callback_at timestamptz;
