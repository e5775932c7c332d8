-- +goose Up
-- Until when this database is known to know everything that was told, and on which timeline of its server: one row, which moves on while a dialer may dial. That of a restored
-- database is as old as its newest commit or older. Where the server writes another timeline than this, or the timeline is empty, nothing is dialled until the topic was gone through.
CREATE TABLE told_until (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    timeline text        NOT NULL,
    until    timestamptz NOT NULL
);
