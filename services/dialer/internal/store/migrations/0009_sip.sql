-- +goose Up
-- The calls of SIP trunks as the process that holds each knows them, and its news: where every replica finds them, and the next process.
CREATE TABLE sip_calls (
    call_id     uuid PRIMARY KEY,
    trunk_id    uuid NOT NULL,
    inbound     boolean NOT NULL,
    from_number text NOT NULL,
    to_number   text NOT NULL,
    -- The process whose sockets the dialog lives on.
    owner       uuid NOT NULL,
    -- What ends the call at the trunk when the owner is gone: a dialog, or an INVITE that is still open. Null: nothing has left.
    teardown    bytea,
    dialed_at   timestamptz,
    ringing_at  timestamptz,
    answered_at timestamptz,
    ended_at    timestamptz,
    cause       text NOT NULL DEFAULT '',
    by_us       boolean NOT NULL DEFAULT false,
    -- What the agent made of the conversation, with the end.
    outcome     text NOT NULL DEFAULT '',
    reached     text NOT NULL DEFAULT '',
    -- Somebody wants it ended, or answered; the owner looks.
    hangup_at   timestamptz,
    pickup_at   timestamptz
);
CREATE INDEX sip_calls_live ON sip_calls (owner) WHERE ended_at IS NULL;
CREATE INDEX sip_calls_ended ON sip_calls (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE sip_owners (
    owner   uuid PRIMARY KEY,
    seen_at timestamptz NOT NULL DEFAULT now()
);

-- One row: its lock gives the news their places in the order in which they are committed.
CREATE TABLE sip_feed (
    one  boolean PRIMARY KEY DEFAULT true CHECK (one),
    feed uuid NOT NULL DEFAULT gen_random_uuid(),
    seq  bigint NOT NULL DEFAULT 0
);
INSERT INTO sip_feed DEFAULT VALUES;

CREATE TABLE sip_news (
    seq     bigint PRIMARY KEY,
    at      timestamptz NOT NULL,
    kind    text NOT NULL,
    call_id uuid NOT NULL,
    role    text NOT NULL DEFAULT '',
    text    text NOT NULL DEFAULT ''
);
CREATE INDEX sip_news_of_call ON sip_news (call_id);
