-- +goose Up

-- The limits count the requests that are claimed or in a call in dial_queue itself. The tables slots,
-- turns, paces and shared_paces and the column ready are read by the previous release only.
CREATE INDEX dial_queue_queued ON dial_queue (workspace_id, look_at) WHERE state = 'queued';
-- look_at of a call in progress is still the end of its claim.
CREATE INDEX dial_queue_in_use ON dial_queue (look_at) INCLUDE (workspace_id)
    WHERE state = 'dialing' OR state = 'queued' AND claimed_by IS NOT NULL;
CREATE INDEX calls_inbound_live ON calls (call_id) WHERE ended_at IS NULL AND direction = 'inbound';

-- One row for each workspace (its id), for the trunk ("trunk <name>") and for all calls ("total").
-- Every change increments version, so that the first index entry of a scope is its row: a
-- transaction with an old snapshot keeps the earlier versions in the index, and none of them is read.
CREATE TABLE rate_buckets (
    scope          text             NOT NULL,
    version        bigint           NOT NULL,
    tokens         double precision NOT NULL,
    refilled_at    timestamptz      NOT NULL DEFAULT now(),
    -- The last claim that took a request.
    claimed_at     timestamptz,
    -- Claims read queued requests from scan_from on; next_scan_from takes its place 10 s after next_scan_at,
    -- when every transaction that read the earlier one has ended. Of the scope total: calls are
    -- counted from scan_from on.
    scan_from      timestamptz,
    next_scan_from timestamptz,
    next_scan_at   timestamptz,
    -- The last claim that left due requests because no capacity was free.
    no_capacity_at timestamptz,
    -- Since when the workspace has had more due than its own limits allow, and when that was seen last.
    own_limit_since timestamptz,
    own_limit_seen  timestamptz,
    PRIMARY KEY (scope, version)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
