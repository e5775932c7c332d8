-- +goose Up

-- An erasure of inbound calls is a job with steps. after_call is the last call that was erased. step_at is when the
-- next step is due; it is null when the job is finished, and then the number is deleted as well. again: the erasure
-- was ordered once more after it had finished.
ALTER TABLE erasures
    ADD COLUMN workspace_id uuid,
    ADD COLUMN phone_e164   text,
    ADD COLUMN again        boolean NOT NULL DEFAULT false,
    ADD COLUMN after_call   uuid    NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    ADD COLUMN step_at      timestamptz,
    ADD CHECK (step_at IS NULL OR workspace_id IS NOT NULL AND phone_e164 IS NOT NULL);
CREATE INDEX erasures_by_step ON erasures (step_at) WHERE step_at IS NOT NULL;

-- A step reads the calls of a number in the order of their ids.
CREATE INDEX calls_by_caller ON calls (workspace_id, from_number, call_id) WHERE direction = 'inbound';
DROP INDEX calls_of_caller;
