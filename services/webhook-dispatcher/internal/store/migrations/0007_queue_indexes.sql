-- +goose NO TRANSACTION
-- +goose Up

-- The indexes are built without blocking the running service. If a build is interrupted, run the
-- migration again.

-- Held deliveries of a subscription: a resumption, the end of a suspension and the gauges read them.
DROP INDEX CONCURRENTLY IF EXISTS webhook_queue_held;
CREATE INDEX CONCURRENTLY webhook_queue_held ON webhook_queue (subscription_id, delivery_id) WHERE held;

-- Open deliveries of a day: dropping the day reads them while nobody can read or write history.
DROP INDEX CONCURRENTLY IF EXISTS webhook_queue_created;
CREATE INDEX CONCURRENTLY webhook_queue_created ON webhook_queue (created_at);
