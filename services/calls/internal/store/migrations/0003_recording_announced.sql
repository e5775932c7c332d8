-- +goose Up

-- True if call.recording_ready was published.
ALTER TABLE calls ADD COLUMN recording_announced boolean NOT NULL DEFAULT false;
