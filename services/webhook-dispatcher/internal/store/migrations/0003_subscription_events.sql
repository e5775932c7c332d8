-- +goose Up

-- The number of events of the subscription itself: webhook_subscription.failing and
-- webhook_subscription.failed.
ALTER TABLE subscription_health ADD COLUMN event_count int NOT NULL DEFAULT 0;

COMMENT ON COLUMN events.call_id IS 'The call, the call request or the subscription of the event. Null for webhook.test.';
COMMENT ON COLUMN deliveries.call_id IS 'The call_id of the event.';
COMMENT ON COLUMN delivery_queue.call_id IS 'The call_id of the event. Events with the same call_id keep their order.';
