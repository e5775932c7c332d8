-- +goose Up
-- The version of the workspace that set the policy in force. A policy of an older version, which
-- arrives late, is ignored.
CREATE TABLE policy_sources (
    workspace_id   uuid PRIMARY KEY,
    set_in_version bigint NOT NULL CHECK (set_in_version > 0)
);
