-- +goose Up
-- A claim counts the slots of the few workspaces that it meets, and all of them.
CREATE INDEX slots_of_workspace ON slots (workspace_id);
