-- +goose Up
-- What a workspace's own agent or model is reached with. Sealed; the sealing key is not in the database.
CREATE TABLE agent_keys (
    workspace_id uuid NOT NULL,
    agent_id     uuid NOT NULL,
    sealed       bytea NOT NULL,
    updated_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, agent_id)
);
