-- +goose NO TRANSACTION
-- +goose Up

-- The status of a subscription is not copied into its queue any more (docs/adr). The column held is
-- not read by this version and stays false in new rows; replicas of the previous version still set it.
-- The indexes are built without blocking the running service. If a build is interrupted, run the
-- migration again.

-- Claims: the due deliveries of one subscription. Replicas of the previous version use
-- webhook_queue_lane and webhook_queue_held; a later version can drop both.
DROP INDEX CONCURRENTLY IF EXISTS webhook_queue_subscription;
CREATE INDEX CONCURRENTLY webhook_queue_subscription ON webhook_queue (subscription_id, is_retry, due_at, delivery_id);

-- Polls: the deliveries that became due since the last poll.
DROP INDEX CONCURRENTLY IF EXISTS webhook_queue_due;
CREATE INDEX CONCURRENTLY webhook_queue_due ON webhook_queue (due_at, delivery_id);

-- The list of due subscriptions at start visits active subscriptions only.
DROP INDEX CONCURRENTLY IF EXISTS webhook_subscription_active;
CREATE INDEX CONCURRENTLY webhook_subscription_active ON webhook_subscription (id) WHERE status = 'active' AND deleted_at IS NULL;

-- Polls also read the subscriptions that were resumed and the workspaces that changed.
DROP INDEX CONCURRENTLY IF EXISTS webhook_subscription_resumed;
CREATE INDEX CONCURRENTLY webhook_subscription_resumed ON webhook_subscription (resumed_at) WHERE resumed_at IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS workspace_updated;
CREATE INDEX CONCURRENTLY workspace_updated ON workspace (updated_at);

-- Replicas of the previous version delete a subscription without looking at its queue, because they
-- delete the queue in the request. This version deletes the queue in a job before the subscription.
-- A later version can drop this trigger.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION webhook_delete_queue() RETURNS trigger LANGUAGE plpgsql
SET search_path = webhook_dispatcher, pg_temp AS $$
BEGIN
    DELETE FROM webhook_queue WHERE subscription_id = OLD.id;
    RETURN NULL;
END $$;
-- +goose StatementEnd
DROP TRIGGER IF EXISTS webhook_subscription_queue ON webhook_subscription;
CREATE TRIGGER webhook_subscription_queue AFTER DELETE ON webhook_subscription
    FOR EACH ROW EXECUTE FUNCTION webhook_delete_queue();
