-- +goose Up
-- For how many days the workspace wants its history kept; null: as long as the service is set to. What is set longer than that goes with its day all the same.
ALTER TABLE workspace ADD COLUMN keep_days int;
