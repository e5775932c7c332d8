-- +goose Up

-- A person that was erased (contract.md, part 10): how often, as contacts-compliance counts. What was placed under a lower count is forgotten, and
-- nothing more is placed under one.
CREATE TABLE erasures (
    workspace_id uuid   NOT NULL,
    phone_e164   text   NOT NULL,
    erasures     bigint NOT NULL CHECK (erasures > 0),
    ordered_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, phone_e164)
);

ALTER TABLE call_requests ADD COLUMN erasures bigint NOT NULL DEFAULT 0, ADD COLUMN erased_at timestamptz;
ALTER TABLE calls ADD COLUMN erased_at timestamptz;
ALTER TABLE calls ADD CHECK (erased_at IS NULL OR (summary IS NULL AND transcript IS NULL));

-- A person's calls are found by their contact, and their requests by those; what has no call, or no contact, is found here.
CREATE INDEX call_requests_without_call ON call_requests (workspace_id, to_e164) WHERE call_id IS NULL;
CREATE INDEX calls_of_caller ON calls (workspace_id, from_number) WHERE direction = 'inbound';
