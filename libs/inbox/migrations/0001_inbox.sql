-- +goose Up
-- One row for each record whose effect is done or that is parked: the second delivery finds it and changes nothing.
CREATE TABLE inbox (
    consumer    text        NOT NULL,
    topic       text        NOT NULL,
    event_id    uuid        NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, topic, event_id)
);
CREATE INDEX inbox_received_at ON inbox (received_at);

-- Records that wait on the DLQ. A key is parked as long as one of its records stands here.
CREATE TABLE parked (
    consumer  text        NOT NULL,
    topic     text        NOT NULL,
    event_id  uuid        NOT NULL,
    key       bytea       NOT NULL,
    key_hash  bytea       NOT NULL GENERATED ALWAYS AS (sha256(key)) STORED,
    error     text        NOT NULL,
    parked_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, topic, event_id)
);
CREATE INDEX parked_key ON parked (consumer, topic, key_hash);
