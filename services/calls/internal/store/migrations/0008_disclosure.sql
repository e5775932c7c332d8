-- +goose Up
-- disclosure states what the person heard of the disclosure, as the API shows it: text, started_at, finished_at, cut_at.
ALTER TABLE calls ADD COLUMN disclosure json;
