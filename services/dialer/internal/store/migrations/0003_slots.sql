-- +goose Up

-- ready: the request's time has come and nobody has it. Only these are walked by a claim, however many are scheduled ahead. What is not ready looks
-- up at look_at: when it is due, when its claim runs out, or, held, at the latest when the call to its number has to be over.
ALTER TABLE dial_queue
    ADD COLUMN ready boolean NOT NULL DEFAULT false,
    ADD COLUMN held  boolean NOT NULL DEFAULT false;
ALTER TABLE dial_queue
    ADD CHECK (NOT (ready AND held)),
    -- A hundred thousand claims leave as many dead rows before the default would have them cleaned up among a million that wait.
    SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000);

DROP INDEX dial_queue_due;
DROP INDEX dial_queue_next;
DROP INDEX dial_queue_claimed;
DROP INDEX dial_queue_by_agent;
CREATE INDEX dial_queue_ready ON dial_queue (workspace_id, look_at) WHERE state = 'queued' AND ready;
CREATE INDEX dial_queue_ahead ON dial_queue (look_at) WHERE state = 'queued' AND NOT ready;
CREATE INDEX dial_queue_waiting ON dial_queue (workspace_id, look_at) WHERE state = 'queued' AND NOT ready AND claimed_by IS NULL;
CREATE INDEX dial_queue_by_agent ON dial_queue (agent_id, look_at) WHERE state = 'queued' AND NOT ready AND claimed_by IS NULL;
CREATE INDEX dial_queue_claimed ON dial_queue (workspace_id, to_e164) WHERE state = 'queued' AND claimed_by IS NOT NULL;
CREATE INDEX dial_queue_held ON dial_queue (workspace_id, to_e164, due_at) WHERE state = 'queued' AND held;

-- One row for each outbound request that is claimed or in a call: what the limits count. It is written with the claim and goes with whatever ends
-- claim or call; one that outlives both is a leak.
CREATE TABLE slots (
    call_request_id uuid PRIMARY KEY,
    workspace_id    uuid        NOT NULL,
    trunk           text        NOT NULL,
    taken_at        timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE slots SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 1000);
INSERT INTO slots (call_request_id, workspace_id, trunk)
SELECT call_request_id, workspace_id, 'sim' FROM calls WHERE ended_at IS NULL AND direction = 'outbound' ON CONFLICT DO NOTHING;

-- The pace of what all workspaces share: overall and each trunk. crowd_until paces the nine tenths that are open to everybody, the last tenth is for those
-- who have little.
CREATE TABLE shared_paces (
    scope       text PRIMARY KEY,
    paced_until timestamptz NOT NULL,
    crowd_until timestamptz NOT NULL
);

-- When the last claim left due work of a workspace because there was no room for it.
ALTER TABLE paces ADD COLUMN crowded_at timestamptz;
DELETE FROM paces WHERE workspace_id = '00000000-0000-0000-0000-000000000000';

-- Where the rounds over the workspaces go on: after this one.
CREATE TABLE turns (
    round        text PRIMARY KEY,
    workspace_id uuid NOT NULL
);
