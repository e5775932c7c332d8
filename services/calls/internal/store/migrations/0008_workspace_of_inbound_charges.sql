-- +goose Up

-- A charge belongs only to a call of the same workspace. Null if an earlier version stored the charge.
ALTER TABLE inbound_charges ADD COLUMN workspace_id uuid;
