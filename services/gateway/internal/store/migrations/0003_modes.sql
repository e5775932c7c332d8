-- +goose Up

-- Calls of a test workspace use the simulated carrier.
--
-- A gateway of an earlier version does not read the mode, and would publish a test workspace as a live
-- one. It does not write mode_version either, so its change of a test workspace violates the constraint.
ALTER TABLE workspaces
    ADD COLUMN mode text NOT NULL DEFAULT 'live' CHECK (mode IN ('live', 'test')),
    ADD COLUMN mode_version bigint, -- the version that contains the mode; null: a live workspace
    ADD CONSTRAINT test_mode_is_known CHECK (mode = 'live' OR mode_version IS NOT DISTINCT FROM version);
