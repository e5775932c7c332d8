-- +goose Up
-- All of an agent's settings, as agents.v1 tells them: a SIP call's conversation is held by them. instructions and outcomes stand among them; their columns stay for builds that
-- still write them.
ALTER TABLE agents
    ADD COLUMN settings json NOT NULL DEFAULT '{}',
    ALTER COLUMN instructions SET DEFAULT '',
    ALTER COLUMN outcomes SET DEFAULT '{}';
