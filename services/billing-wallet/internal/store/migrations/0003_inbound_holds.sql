-- +goose Up

-- True for the hold of an inbound call. Its request_id is the id of the call.
ALTER TABLE holds ADD COLUMN inbound boolean NOT NULL DEFAULT false;
