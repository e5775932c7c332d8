-- +goose Up

-- Charges of inbound calls that arrived before the first event of their call. The row is deleted when
-- the call is stored.
CREATE TABLE inbound_charges (
    call_id       uuid PRIMARY KEY,
    credits_micro bigint NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now()
);
