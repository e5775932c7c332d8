-- +goose Up

-- A calling policy may carry members that nobody here knows, and jsonb refuses what JSON allows (a number of 400 digits): such a
-- workspace could not be saved. json keeps the text as it was.
ALTER TABLE workspaces ALTER COLUMN calling_policy TYPE json;
