-- +goose Up

-- Set once a cancel was answered with 200: of several that meet, one took the request back and the others found it canceled.
ALTER TABLE call_requests ADD COLUMN cancel_answered boolean NOT NULL DEFAULT false;
