-- +goose Up
-- For the deletion of old attempts.
CREATE INDEX sip_attempts_by_start ON sip_attempts (started_at);
