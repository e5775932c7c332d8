-- +goose Up
-- The SIP messages of a trunk are recorded if trace is true.
ALTER TABLE trunks ADD COLUMN trace boolean NOT NULL DEFAULT false;

-- An operator's request for the recorded messages of a trunk, and the answer of each dialer process. Rows exist only while
-- the request is answered. The tables are not logged: they hold nothing that must survive a crash.
CREATE UNLOGGED TABLE sip_trace_requests (
    request_id   uuid PRIMARY KEY,
    trunk_id     uuid NOT NULL,
    -- Only the messages with this Call-ID; empty: all.
    sip_call_id  text NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNLOGGED TABLE sip_trace_answers (
    request_id uuid NOT NULL REFERENCES sip_trace_requests ON DELETE CASCADE,
    owner      uuid NOT NULL,
    messages   json NOT NULL,
    PRIMARY KEY (request_id, owner)
);
