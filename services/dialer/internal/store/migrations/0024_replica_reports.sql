-- +goose Up
-- What each dialer process reports about itself every two seconds: the state of the trunks as it sees them. Operators
-- read the reports of all processes, whichever process answers.
CREATE TABLE replica_reports (
    owner       uuid PRIMARY KEY,
    -- The name of the host that the process runs on.
    name        text NOT NULL,
    reported_at timestamptz NOT NULL DEFAULT now(),
    report      jsonb NOT NULL
);
