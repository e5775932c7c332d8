-- +goose Up
-- +goose NO TRANSACTION

-- The filters of GET /v1/audit, and the entries of operators and people, which GET /admin/v1/audit lists.
-- The lists are ordered by uuid_send(id), which is the order of the ids, so that Postgres uses one of these
-- indexes and never the primary key, which has the entries of all workspaces. CONCURRENTLY does not block the
-- writes of running services. If it is interrupted, it leaves an invalid index, which the next run of this
-- file drops.
DROP INDEX CONCURRENTLY IF EXISTS audit_entries_newest;
CREATE INDEX CONCURRENTLY audit_entries_newest ON audit_entries (workspace_id, uuid_send(id));
DROP INDEX CONCURRENTLY IF EXISTS audit_entries_by_actor;
CREATE INDEX CONCURRENTLY audit_entries_by_actor ON audit_entries (workspace_id, actor_id, uuid_send(id));
DROP INDEX CONCURRENTLY IF EXISTS audit_entries_by_actor_and_type;
CREATE INDEX CONCURRENTLY audit_entries_by_actor_and_type
    ON audit_entries (workspace_id, actor_id, object_type, uuid_send(id));
DROP INDEX CONCURRENTLY IF EXISTS audit_entries_by_object_type;
CREATE INDEX CONCURRENTLY audit_entries_by_object_type ON audit_entries (workspace_id, object_type, uuid_send(id));
DROP INDEX CONCURRENTLY IF EXISTS audit_entries_by_object;
CREATE INDEX CONCURRENTLY audit_entries_by_object ON audit_entries (workspace_id, object_id, uuid_send(id));
DROP INDEX CONCURRENTLY IF EXISTS audit_entries_of_operators;
CREATE INDEX CONCURRENTLY audit_entries_of_operators ON audit_entries (uuid_send(id)) WHERE operator <> '';
DROP INDEX CONCURRENTLY IF EXISTS audit_entries_of_operators_by_workspace;
CREATE INDEX CONCURRENTLY audit_entries_of_operators_by_workspace
    ON audit_entries (workspace_id, uuid_send(id)) WHERE operator <> '';
DROP INDEX CONCURRENTLY IF EXISTS audit_entries_by_workspace;
