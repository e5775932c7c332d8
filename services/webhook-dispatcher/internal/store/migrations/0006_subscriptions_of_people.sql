-- +goose Up

-- True if a person created or changed the subscription with a session of the console. Its deliveries do not need the
-- webhooks feature of the plan.
ALTER TABLE subscriptions ADD COLUMN by_person boolean NOT NULL DEFAULT false;
