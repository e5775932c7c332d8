-- +goose Up
-- One row for each trunk to which an attempt to call was offered, and for each inbound call. The row of an outbound attempt
-- is written before the INVITE leaves, so it is there after a crash. It is kept when sip_calls forgets the call.
CREATE TABLE sip_attempts (
    attempt_id  uuid PRIMARY KEY,
    call_id     uuid NOT NULL,
    trunk_id    uuid NOT NULL,
    -- The name of the trunk at the time of the attempt.
    trunk       text NOT NULL,
    -- The Call-ID of the SIP messages.
    sip_call_id text NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    ended_at    timestamptz,
    -- The final response to the INVITE. Null: there was none.
    sip_status  integer,
    sip_reason  text NOT NULL DEFAULT '',
    cause       text NOT NULL DEFAULT '',
    by_us       boolean NOT NULL DEFAULT false,
    -- Why there was no final response.
    error       text NOT NULL DEFAULT ''
);
CREATE INDEX sip_attempts_by_call ON sip_attempts (call_id);
