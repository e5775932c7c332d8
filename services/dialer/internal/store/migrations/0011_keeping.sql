-- +goose Up

-- What was said stays a day behind the end of its call; what a call was about goes with the end.
CREATE INDEX calls_spoken ON calls (ended_at) WHERE ended_at IS NOT NULL AND json_array_length(turns) > 0;
UPDATE dial_queue SET variables = NULL WHERE ended_at IS NOT NULL AND variables IS NOT NULL;
UPDATE calls SET variables = NULL WHERE ended_at IS NOT NULL AND variables IS NOT NULL;
