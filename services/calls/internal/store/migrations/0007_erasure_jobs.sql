-- +goose Up

-- An erasure is done in steps. after_request and after_call are the last request and the last inbound call that were
-- processed. last_call is the newest inbound call at the time of the order. step_at is the time of the next step. The
-- row, and the number with it, is deleted with the last step. again: the erasure was ordered before.
CREATE TABLE erasure_jobs (
    erasure_id    uuid        PRIMARY KEY,
    workspace_id  uuid        NOT NULL,
    phone_e164    text        NOT NULL,
    contact_id    uuid        NOT NULL,
    erasures      bigint      NOT NULL CHECK (erasures > 0),
    again         boolean     NOT NULL,
    last_call     uuid        NOT NULL,
    after_request uuid        NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    after_call    uuid        NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    step_at       timestamptz NOT NULL
);
CREATE INDEX erasure_jobs_by_step ON erasure_jobs (step_at);

-- A step reads the inbound calls of a number in the order of their ids.
CREATE INDEX calls_by_caller ON calls (workspace_id, from_number, id) WHERE direction = 'inbound';
DROP INDEX calls_of_caller;
