-- +goose Up

-- The lists have the filters to and outcome.
CREATE INDEX call_requests_by_number ON call_requests (workspace_id, to_e164, status, uuid_send(id));
CREATE INDEX calls_by_number ON calls (workspace_id, to_e164, direction, list_status, uuid_send(id));
CREATE INDEX calls_by_outcome ON calls (workspace_id, outcome, direction, list_status, uuid_send(id)) WHERE outcome IS NOT NULL;
