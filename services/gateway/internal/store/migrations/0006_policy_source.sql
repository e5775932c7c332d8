-- +goose Up
-- Who set the calling policy, and the version of the workspace that set it. NULL if it was set before
-- these columns existed: the events of the workspace then carry no policy.
ALTER TABLE workspaces
    ADD COLUMN policy_operator text,
    ADD COLUMN policy_version bigint;
