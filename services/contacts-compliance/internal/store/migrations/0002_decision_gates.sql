-- +goose Up

-- Each gate of a decision with its reason, as a list. The column is null in rows that an earlier version
-- stored.
ALTER TABLE decisions ADD COLUMN gates json;
