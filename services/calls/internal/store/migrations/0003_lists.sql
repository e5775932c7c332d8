-- +goose Up

-- The public lists (README, Lists). Ordered by the key's bytes, so that the primary key, which knows no workspace, cannot serve them.
ALTER TABLE calls ADD COLUMN standing text NOT NULL
    GENERATED ALWAYS AS (CASE WHEN status IN ('initiated', 'ringing', 'in_progress') THEN 'live' ELSE status END) STORED;

CREATE INDEX calls_newest ON calls (workspace_id, uuid_send(id));
CREATE INDEX calls_lanes ON calls (workspace_id, direction, standing, uuid_send(id));
CREATE INDEX calls_lanes_of_agent ON calls (workspace_id, agent_id, direction, standing, uuid_send(id));
CREATE INDEX calls_lanes_of_external_ref ON calls (workspace_id, external_ref, direction, standing, uuid_send(id))
    WHERE external_ref IS NOT NULL;
CREATE INDEX calls_of_contact ON calls (workspace_id, contact_id, uuid_send(id)) WHERE contact_id IS NOT NULL;
DROP INDEX calls_of_workspace, calls_by_external_ref, calls_by_contact;

CREATE INDEX call_requests_lanes ON call_requests (workspace_id, status, uuid_send(id));
CREATE INDEX call_requests_lanes_of_external_ref ON call_requests (workspace_id, external_ref, status, uuid_send(id))
    WHERE external_ref IS NOT NULL;
DROP INDEX call_requests_of_workspace, call_requests_by_external_ref;
