-- +goose Up

-- The cause of a failed attempt, in one sentence; null if the attempt succeeded.
ALTER TABLE attempts ADD COLUMN cause text;
-- The cause of the last failed attempt; null after a success.
ALTER TABLE subscription_health ADD COLUMN last_cause text;

-- A list with the filter status or event_type reads the newest deliveries of each pair of status
-- and event type. It sorts created_at in the opposite direction of deliveries_subscription, so that the
-- order of each statement matches only one of the two indexes.
CREATE INDEX deliveries_filtered ON deliveries (subscription_id, status, event_type, created_at, id);
DROP INDEX deliveries_missed;
