-- +goose Up

-- The price and the limits of the inbound calls of a workspace.
ALTER TABLE workspaces
    ADD COLUMN inbound_per_minute_micro  bigint  NOT NULL DEFAULT 0,
    ADD COLUMN inbound_increment_seconds integer NOT NULL DEFAULT 1,
    ADD COLUMN inbound_max_concurrent    integer NOT NULL DEFAULT 50,
    ADD COLUMN inbound_max_call_seconds  integer NOT NULL DEFAULT 3600;

-- priced is true if inbound calls of the workspace had a price when the call arrived: billing-wallet
-- can have a hold for the call. admitted is true if the call counts as one of the workspace's
-- concurrent inbound calls.
ALTER TABLE calls
    ADD COLUMN priced   boolean NOT NULL DEFAULT false,
    ADD COLUMN admitted boolean NOT NULL DEFAULT false;
