-- +goose Up
-- The audit keeps what an owner answered, and jsonb refuses what JSON allows (a number of 400 digits): such a
-- change would lose its row. json keeps the text as it was.
ALTER TABLE audit ALTER COLUMN before TYPE json, ALTER COLUMN after TYPE json;
ALTER TABLE audit_intents ALTER COLUMN before TYPE json;
