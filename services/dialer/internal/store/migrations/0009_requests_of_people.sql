-- +goose Up

-- True if a person placed the request with a session of the console. The features of the plan do not apply to it.
ALTER TABLE dial_queue ADD COLUMN by_person boolean NOT NULL DEFAULT false;
