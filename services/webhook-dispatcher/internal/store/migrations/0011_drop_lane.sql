-- +goose NO TRANSACTION
-- +goose Up

-- webhook_queue_subscription replaces this index: it has the same columns and contains every row. Claims of
-- replicas of the previous version read it too. Each insert and each claim writes one entry less.
DROP INDEX CONCURRENTLY IF EXISTS webhook_queue_lane;
