-- +goose Up
-- How long neither RTP nor RTCP may arrive in a call of the trunk, in seconds; 0: there is no limit.
ALTER TABLE trunks ADD COLUMN media_timeout_seconds integer NOT NULL DEFAULT 15;
