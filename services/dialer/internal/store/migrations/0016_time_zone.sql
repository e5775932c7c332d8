-- +goose Up
-- Where the person of a call is, as contacts-compliance said when it was asked about them: a number need not tell.
ALTER TABLE calls ADD COLUMN time_zone text NOT NULL DEFAULT '';
