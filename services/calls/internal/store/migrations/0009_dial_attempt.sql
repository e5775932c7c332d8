-- +goose Up

-- The newest attempt of the dialer that an event named. A late event of an older attempt changes nothing.
ALTER TABLE call_requests ADD COLUMN dial_attempt int NOT NULL DEFAULT 0;
