-- +goose Up
-- json, not jsonb: what customers and people say is kept as it was sent. jsonb refuses some valid JSON (1e400000, a lone
-- surrogate), and one such request would stop a partition of call-requests.v1 for everybody.
ALTER TABLE dial_queue ALTER COLUMN variables TYPE json;
ALTER TABLE calls
    ALTER COLUMN variables TYPE json,
    ALTER COLUMN turns DROP DEFAULT,
    ALTER COLUMN turns TYPE json,
    ALTER COLUMN turns SET DEFAULT '[]';
