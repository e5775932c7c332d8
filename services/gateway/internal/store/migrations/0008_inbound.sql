-- +goose Up

-- The price and the limits of inbound calls. With the price 0, inbound calls are free.
ALTER TABLE workspaces
    ADD COLUMN inbound_per_minute_micro  bigint  NOT NULL DEFAULT 0 CHECK (inbound_per_minute_micro >= 0),
    ADD COLUMN inbound_increment_seconds integer NOT NULL DEFAULT 1 CHECK (inbound_increment_seconds BETWEEN 1 AND 3600),
    ADD COLUMN inbound_max_concurrent    integer NOT NULL DEFAULT 50 CHECK (inbound_max_concurrent > 0),
    ADD COLUMN inbound_max_call_seconds  integer NOT NULL DEFAULT 3600 CHECK (inbound_max_call_seconds > 0);
