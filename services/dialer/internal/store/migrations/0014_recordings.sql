-- +goose Up

-- Whether the workspace's calls are recorded, and for how many days that is kept; null: as long as the service is set to.
ALTER TABLE workspaces ADD COLUMN recordings boolean NOT NULL DEFAULT false, ADD COLUMN keep_recordings_days int;

-- Where the call's recording lies, once it is in the storage; empty: none.
ALTER TABLE calls ADD COLUMN recording_key text NOT NULL DEFAULT '';

-- Directories in which processes write recordings, by the name that lies in each, and when a process last worked in one.
CREATE TABLE spools (
    spool   uuid PRIMARY KEY,
    seen_at timestamptz NOT NULL DEFAULT now()
);

-- Recordings from their first sound to their last trace. recording: a process writes the file. recorded: the file waits for the storage. stored: it lies there. leaving: file and
-- object go, then the row. lost: the file was where nobody comes any more.
CREATE TABLE recordings (
    call_id      uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    key          text NOT NULL,
    spool        uuid NOT NULL,
    state        text NOT NULL DEFAULT 'recording' CHECK (state IN ('recording', 'recorded', 'stored', 'leaving', 'lost')),
    -- The object may lie in the storage.
    in_storage   boolean NOT NULL DEFAULT false,
    begun_at     timestamptz NOT NULL DEFAULT now(),
    ended_at     timestamptz,
    try_at       timestamptz NOT NULL DEFAULT now(),
    tries        int NOT NULL DEFAULT 0,
    -- Erasures that are told when it is gone.
    erasures     uuid[] NOT NULL DEFAULT '{}'
);
CREATE INDEX recordings_to_do ON recordings (try_at) WHERE state IN ('recorded', 'leaving');
CREATE INDEX recordings_of_spool ON recordings (spool) WHERE state IN ('recording', 'recorded');
CREATE INDEX recordings_kept ON recordings (workspace_id, ended_at) WHERE state IN ('stored', 'lost');
