-- +goose Up
-- Calls that live at the carrier and not here: one that has ended here and rings late, an inbound one at a number that nobody has. Each is hung up there and then forgotten.
CREATE TABLE orphans (
    call_id   uuid PRIMARY KEY,
    hangup_at timestamptz NOT NULL DEFAULT now()
);
