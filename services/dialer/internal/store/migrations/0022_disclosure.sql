-- +goose Up
-- disclosure states what was played of the disclosure: text, started_at, finished_at or cut_at. It is null before the end
-- of the call, and if the playout is not known. spoken_until is when the last of an agent's turn was played.
ALTER TABLE sip_calls ADD COLUMN disclosure json;
ALTER TABLE calls ADD COLUMN disclosure json;
ALTER TABLE sip_news ADD COLUMN spoken_until timestamptz;
