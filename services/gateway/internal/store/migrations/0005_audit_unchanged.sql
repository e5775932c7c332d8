-- +goose Up
-- An accepted request that changed nothing, for example a top-up whose reference was used before, has the outcome unchanged.
ALTER TABLE audit DROP CONSTRAINT audit_outcome_check,
    ADD CONSTRAINT audit_outcome_check CHECK (outcome IN ('done', 'unchanged', 'unknown'));
