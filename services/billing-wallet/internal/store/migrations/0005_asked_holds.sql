-- +goose NO TRANSACTION
-- +goose Up
-- Confirming reads the open holds in this order.
DROP INDEX CONCURRENTLY IF EXISTS holds_asked;
CREATE INDEX CONCURRENTLY holds_asked ON holds (coalesce(unconfirmed_at, created_at)) WHERE state = 'held';
