-- +goose NO TRANSACTION
-- +goose Up

-- Reconciling reads a workspace's holds, settled ones too, and no other's. Built beside the running service; again after a fault.
DROP INDEX CONCURRENTLY IF EXISTS holds_of_workspace;
CREATE INDEX CONCURRENTLY holds_of_workspace ON holds (workspace_id, state);
DROP INDEX CONCURRENTLY IF EXISTS holds_open;
