-- +goose Up

-- When the subscription last became active again: what was held flows slowly at first, on every replica.
ALTER TABLE webhook_subscription ADD COLUMN resumed_at timestamptz;
