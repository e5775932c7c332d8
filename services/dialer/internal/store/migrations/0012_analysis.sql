-- +goose Up
-- A call whose agent talked by itself is analysed after its end: outcome is what the conversation came to, analyse_at when somebody is to see to the summary, analyses how often
-- somebody began.
ALTER TABLE calls
    ADD COLUMN outcome text NOT NULL DEFAULT '',
    ADD COLUMN analyse_at timestamptz,
    ADD COLUMN analyses integer NOT NULL DEFAULT 0;
CREATE INDEX calls_to_analyse ON calls (analyse_at) WHERE analyse_at IS NOT NULL;
