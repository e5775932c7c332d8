-- +goose NO TRANSACTION
-- +goose Up

-- What is to be analysed is looked for by workspaces in turn: one whose endpoint hangs holds up a look no longer than any other. Built beside the running service; again
-- after a fault.
DROP INDEX CONCURRENTLY IF EXISTS calls_to_analyse_of;
CREATE INDEX CONCURRENTLY calls_to_analyse_of ON calls (workspace_id, analyse_at) WHERE analyse_at IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS calls_to_analyse;
