-- +goose Up
-- Since when a workspace has had more due than its own limits let through, and when that was seen last: what is late by its customer's choice.
ALTER TABLE paces ADD COLUMN own_since timestamptz, ADD COLUMN own_seen timestamptz;
