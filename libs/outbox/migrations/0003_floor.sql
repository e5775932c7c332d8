-- +goose Up
-- No row with a lower id exists or can still be committed (libs/outbox/floor.go).
ALTER TABLE outbox_leases ADD COLUMN floor bigint NOT NULL DEFAULT 0;
