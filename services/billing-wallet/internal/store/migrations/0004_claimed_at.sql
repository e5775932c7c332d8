-- +goose Up
-- A claim is no comparison: what replicas set about and cannot compare grows old, and somebody is told. Rows of before, and those of the version before while both run, have the claim in checked_at.
ALTER TABLE reconciliations ADD COLUMN IF NOT EXISTS claimed_at timestamptz, ALTER COLUMN checked_at DROP NOT NULL;
