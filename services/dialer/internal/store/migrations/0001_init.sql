-- +goose Up

-- Settings that other services own. The dialer stores a copy of them. The column version is the
-- version that was copied.

CREATE TABLE workspaces (
    workspace_id         uuid PRIMARY KEY,
    version              bigint  NOT NULL,
    status               text    NOT NULL,
    api_enabled          boolean NOT NULL,
    max_live_calls       integer NOT NULL,
    calls_per_second     integer NOT NULL,
    destinations         text[]  NOT NULL, -- prefixes of the numbers that may be called
    recordings           boolean NOT NULL DEFAULT false,
    keep_recordings_days integer           -- null: the configured period of the service
);

CREATE TABLE agents (
    agent_id         uuid PRIMARY KEY,
    workspace_id     uuid    NOT NULL,
    version          bigint  NOT NULL,
    name             text    NOT NULL,
    from_e164        text    NOT NULL,
    max_call_seconds integer NOT NULL,
    settings         json    NOT NULL DEFAULT '{}', -- all settings, as agents.v1 publishes them
    deleted          boolean NOT NULL
);

-- The credential for an agent's own model or media endpoint. It is encrypted, and the encryption key
-- is not in the database.
CREATE TABLE agent_keys (
    workspace_id uuid        NOT NULL,
    agent_id     uuid        NOT NULL,
    sealed       bytea       NOT NULL,
    updated_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, agent_id)
);

-- The phone numbers of the workspaces. The agent of a number answers the inbound calls to it.
CREATE TABLE numbers (
    number_id    uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    phone_e164   text NOT NULL UNIQUE,
    agent_id     uuid NOT NULL
);
CREATE INDEX numbers_by_workspace ON numbers (workspace_id, number_id DESC);
CREATE INDEX numbers_by_agent ON numbers (agent_id, number_id);

-- The dial queue. One row for each call request. The row is kept for 60 days, because an event about
-- the request can arrive again. A request that is withdrawn before it arrives has a row without a
-- phone number.
--
-- look_at is the time at which a claim reads the row next. For a request that waits, it is the due
-- time. For a claimed request, it is the end of the claim. For a held request, it is the time by
-- which the call to its number must have ended.
--
-- The column variables has the type json, which accepts every valid JSON text. jsonb refuses some
-- texts, and such a request would stop a partition of call-requests.v1.
CREATE TABLE dial_queue (
    call_request_id           uuid PRIMARY KEY,
    workspace_id              uuid        NOT NULL,
    state                     text        NOT NULL,
    to_e164                   text,
    agent_id                  uuid,
    contact_id                uuid,
    variables                 json,
    schedule_if_outside_hours boolean     NOT NULL DEFAULT false,
    max_call_seconds          integer     NOT NULL DEFAULT 0,
    queued_at                 timestamptz,
    due_at                    timestamptz,
    look_at                   timestamptz,
    looks                     integer     NOT NULL DEFAULT 0, -- number of dial-time checks that found no agent
    held                      boolean     NOT NULL DEFAULT false, -- true while it waits for the end of a call to its number
    claimed_by                uuid,
    traceparent               text        NOT NULL DEFAULT '',
    created_at                timestamptz NOT NULL DEFAULT now(),
    ended_at                  timestamptz,
    CHECK (state IN ('queued', 'dialing', 'ended', 'withdrawn', 'blocked', 'failed')),
    CHECK (state = 'withdrawn' OR (to_e164 IS NOT NULL AND agent_id IS NOT NULL AND due_at IS NOT NULL AND look_at IS NOT NULL)),
    CHECK ((ended_at IS NULL) = (state IN ('queued', 'dialing')))
) WITH (
    -- With the default settings, vacuum would start only after 200,000 dead rows in a queue of a
    -- million rows.
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000
);
CREATE INDEX dial_queue_queued ON dial_queue (workspace_id, look_at) WHERE state = 'queued';
CREATE INDEX dial_queue_by_agent ON dial_queue (agent_id, look_at) WHERE state = 'queued' AND claimed_by IS NULL;
CREATE INDEX dial_queue_claimed ON dial_queue (workspace_id, to_e164) WHERE state = 'queued' AND claimed_by IS NOT NULL;
CREATE INDEX dial_queue_held ON dial_queue (workspace_id, to_e164, due_at) WHERE state = 'queued' AND held;
CREATE INDEX dial_queue_age ON dial_queue (due_at) WHERE state = 'queued';
-- The requests that the limits count: they are claimed or in a call. For a request in a call, look_at
-- is the end of its former claim, or the time at which MoveLongCalls last moved it forward.
CREATE INDEX dial_queue_in_use ON dial_queue (look_at) INCLUDE (workspace_id)
    WHERE state = 'dialing' OR state = 'queued' AND claimed_by IS NOT NULL;

-- The token buckets of the rate limits. A scope is a workspace (its id), a carrier ("trunk <name>")
-- or all calls together ("total"). Each scope has one row.
--
-- Every change increments version. So the index entry with the highest version is the current row,
-- and the entries of earlier versions, which a transaction with an old snapshot keeps in the index,
-- are not read.
CREATE TABLE rate_buckets (
    scope           text             NOT NULL,
    version         bigint           NOT NULL,
    tokens          double precision NOT NULL,
    refilled_at     timestamptz      NOT NULL DEFAULT now(),
    claimed_at      timestamptz, -- when a claim last took a request and a token
    -- Claims read only queued requests whose look_at is not before scan_from. 10 s after
    -- next_scan_at, next_scan_from replaces scan_from; by then each transaction that read the earlier
    -- value has ended. In the row of the scope total, scan_from limits the count of requests in use.
    scan_from       timestamptz,
    next_scan_from  timestamptz,
    next_scan_at    timestamptz,
    no_capacity_at  timestamptz, -- when a claim last left due requests because no capacity was free
    own_limit_since timestamptz, -- since when the workspace's own limits delay due requests
    own_limit_seen  timestamptz, -- when a claim last found this
    PRIMARY KEY (scope, version)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- A fence is the permission to dial a request once. It commits before the INVITE is sent, and it is
-- never changed. The retention job deletes it after 60 days, together with its request (ADR 12).
CREATE TABLE fences (
    call_id         uuid PRIMARY KEY,
    call_request_id uuid        NOT NULL,
    attempt         integer     NOT NULL,
    trunk           text        NOT NULL,
    instance_id     uuid        NOT NULL,
    fenced_at       timestamptz NOT NULL DEFAULT now(),
    UNIQUE (call_request_id, attempt)
);
REVOKE UPDATE, TRUNCATE ON fences FROM dialer_app;

-- +goose StatementBegin
CREATE FUNCTION refuse_deletion() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'fence of call % is younger than 60 days', OLD.call_id USING ERRCODE = 'restrict_violation';
END $$;
-- +goose StatementEnd
CREATE TRIGGER fences_young BEFORE DELETE ON fences FOR EACH ROW
    WHEN (OLD.fenced_at > now() - interval '60 days') EXECUTE FUNCTION refuse_deletion();

-- The calls. The API does not show two values of status: fenced (it is not stored yet whether an
-- INVITE was sent) and void (no phone rang, and no event contains the call).
CREATE TABLE calls (
    call_id          uuid PRIMARY KEY,
    call_request_id  uuid,                                    -- null for an inbound call
    workspace_id     uuid        NOT NULL,
    direction        text        NOT NULL,
    from_number      text        NOT NULL,
    to_e164          text        NOT NULL,
    agent_id         uuid        NOT NULL,
    contact_id       uuid,
    variables        json,
    status           text        NOT NULL,
    ending           text        NOT NULL DEFAULT '',         -- why the dialer hangs up; '': it does not hang up
    hangup_cause     text        NOT NULL DEFAULT '',
    disposition      text        NOT NULL DEFAULT '',
    error_code       text        NOT NULL DEFAULT '',
    error_detail     text        NOT NULL DEFAULT '',
    queued_at        timestamptz,
    dialed_at        timestamptz,
    ringing_at       timestamptz,
    answered_at      timestamptz,
    ended_at         timestamptz,
    turns            json        NOT NULL DEFAULT '[]',       -- the transcript
    disclosure       json,                                    -- what was played of it; null before the end, or if unknown
    outcome          text        NOT NULL DEFAULT '',         -- the result of the conversation
    analyse_at       timestamptz,                             -- when the next summary attempt is due; null: none is due
    analyses         integer     NOT NULL DEFAULT 0,          -- number of summary attempts
    recording_key    text        NOT NULL DEFAULT '',         -- the key in object storage; '': not stored
    time_zone        text        NOT NULL DEFAULT '',         -- time zone of the person; '': unknown
    -- True if the person was erased. The transcript of a live call is kept until the end of the call,
    -- because the agent needs it.
    erased           boolean     NOT NULL DEFAULT false,
    max_call_seconds integer     NOT NULL,
    end_by           timestamptz,                             -- when the call reaches max_call_seconds
    deadline_at      timestamptz NOT NULL,                    -- when the watchdog ends the call
    hangup_at        timestamptz,                             -- when the dialer next requests the hangup
    answer_at        timestamptz,                             -- when the dialer next requests the answer
    counted_at       timestamptz NOT NULL DEFAULT now(),      -- set to now() regularly while an inbound call is live
    owner            uuid,
    traceparent      text        NOT NULL DEFAULT '',
    version          bigint      NOT NULL DEFAULT 0,
    CHECK (direction IN ('inbound', 'outbound')),
    CHECK ((direction = 'outbound') = (call_request_id IS NOT NULL)),
    CHECK (status IN ('fenced', 'void', 'initiated', 'ringing', 'in_progress', 'completed', 'no_answer', 'busy', 'failed', 'canceled')),
    CHECK ((ended_at IS NULL) = (status IN ('fenced', 'initiated', 'ringing', 'in_progress')))
);
-- A workspace has at most one live call to a number.
CREATE UNIQUE INDEX calls_one_live ON calls (workspace_id, to_e164) WHERE ended_at IS NULL AND direction = 'outbound';
-- The live inbound calls. A count reads only the entries whose counted_at is in the last ten minutes.
-- The entries of calls that have ended stay in the index until vacuum removes them, and a transaction
-- with an old snapshot prevents that.
CREATE INDEX calls_inbound_live ON calls (counted_at) WHERE ended_at IS NULL AND direction = 'inbound';
CREATE INDEX calls_owned ON calls (owner) WHERE ended_at IS NULL;
CREATE INDEX calls_hangup ON calls (hangup_at) WHERE ended_at IS NULL AND hangup_at IS NOT NULL;
CREATE INDEX calls_answer ON calls (answer_at) WHERE ended_at IS NULL AND answer_at IS NOT NULL;
CREATE INDEX calls_longest ON calls (end_by) WHERE ended_at IS NULL AND ending = '';
CREATE INDEX calls_deadline ON calls (deadline_at) WHERE ended_at IS NULL;
CREATE INDEX calls_by_request ON calls (call_request_id);
-- An erasure reads the inbound calls of a number in the order of their ids.
CREATE INDEX calls_by_caller ON calls (workspace_id, from_number, call_id) WHERE direction = 'inbound';
-- The transcripts that the retention job deletes.
CREATE INDEX calls_spoken ON calls (ended_at) WHERE ended_at IS NOT NULL AND json_array_length(turns) > 0;
-- Summaries are claimed separately for each workspace, so a slow model delays only its own workspace.
CREATE INDEX calls_to_analyse_of ON calls (workspace_id, analyse_at) WHERE analyse_at IS NOT NULL;

-- Orphaned calls: they are live at the carrier although the row of the call has ended or does not
-- exist. The dialer hangs them up and then deletes their rows here.
CREATE TABLE orphaned_calls (
    call_id   uuid PRIMARY KEY,
    hangup_at timestamptz NOT NULL DEFAULT now()
);

-- Opt-outs during calls. The dialer reports an opt-out to contacts-compliance until it is
-- acknowledged. Until then the dialer itself does not dial the number.
CREATE TABLE opt_outs (
    call_id         uuid PRIMARY KEY,
    workspace_id    uuid        NOT NULL,
    phone_e164      text        NOT NULL,
    evidence        text        NOT NULL, -- what the person said; '' after the acknowledgement
    heard_at        timestamptz NOT NULL,
    report_at       timestamptz NOT NULL DEFAULT now(),
    acknowledged_at timestamptz
);
CREATE INDEX opt_outs_by_number ON opt_outs (workspace_id, phone_e164);
CREATE INDEX opt_outs_to_report ON opt_outs (report_at) WHERE acknowledged_at IS NULL;

-- The erasures of persons. The inbound calls of the person's number are erased in steps, in the order
-- of their ids. If no step remains, phone_e164 is null.
CREATE TABLE erasures (
    erasure_id   uuid PRIMARY KEY,
    ordered_at   timestamptz NOT NULL DEFAULT now(),
    workspace_id uuid,
    phone_e164   text,                          -- set to null after the last step
    again        boolean     NOT NULL DEFAULT false, -- whether it was ordered again after the last step
    after_call   uuid        NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000', -- the last erased call
    step_at      timestamptz,                   -- when the next step is due; null: no step remains
    CHECK (step_at IS NULL OR workspace_id IS NOT NULL AND phone_e164 IS NOT NULL)
);
CREATE INDEX erasures_by_step ON erasures (step_at) WHERE step_at IS NOT NULL;

-- The heartbeats of the dialer processes. A process without a recent heartbeat is dead, and other
-- processes take over its calls.
CREATE TABLE instances (
    instance_id  uuid PRIMARY KEY,
    seen_at      timestamptz NOT NULL DEFAULT now(),
    steady_since timestamptz NOT NULL DEFAULT now() -- since when no heartbeat was late
);

-- For each carrier, the position up to which its events are applied, and the process that reads its
-- events.
CREATE TABLE carrier_cursors (
    trunk        text PRIMARY KEY,
    feed         text        NOT NULL DEFAULT '', -- the id of the carrier's stream of events
    cursor       bigint      NOT NULL DEFAULT 0,
    reader       uuid,
    reader_until timestamptz NOT NULL DEFAULT now()
);

-- The report that each process stores every two seconds, for example the state of the trunks in this
-- process.
CREATE TABLE replica_reports (
    owner       uuid PRIMARY KEY,
    name        text        NOT NULL, -- name of the host
    reported_at timestamptz NOT NULL DEFAULT now(),
    report      jsonb       NOT NULL
);

-- The SIP trunks. The password is encrypted, and the encryption key is not in the database.
CREATE TABLE trunks (
    trunk_id              uuid PRIMARY KEY,
    version               bigint  NOT NULL,
    name                  text    NOT NULL,
    status                text    NOT NULL CHECK (status IN ('active', 'disabled')),
    host                  text    NOT NULL,
    port                  integer NOT NULL,
    transport             text    NOT NULL,
    outbound_proxy        text    NOT NULL,
    ca_certificates       text    NOT NULL,
    username              text    NOT NULL,
    password_sealed       bytea,
    register              boolean NOT NULL,
    caller_ids            text[]  NOT NULL,
    caller_id_header      text    NOT NULL,
    number_format         text    NOT NULL,
    number_prefix         text    NOT NULL,
    codecs                text[]  NOT NULL,
    srtp                  text    NOT NULL,
    session_seconds       integer NOT NULL,
    channels              integer NOT NULL,
    calls_per_second      integer NOT NULL,
    priority              integer NOT NULL,
    inbound_sources       text[]  NOT NULL,
    -- A call ends if no RTP and no RTCP arrive for this time; 0: no limit.
    media_timeout_seconds integer NOT NULL DEFAULT 15,
    trace                 boolean NOT NULL DEFAULT false -- whether the SIP messages are recorded
);
CREATE UNIQUE INDEX trunks_name ON trunks (lower(name));

-- The legs: the SIP dialogs of calls. owner is the process whose sockets the dialog uses. To end or
-- answer a leg, another process sets hangup_at or pickup_at, and the owner does it.
CREATE TABLE sip_legs (
    call_id     uuid PRIMARY KEY,
    trunk_id    uuid    NOT NULL,
    inbound     boolean NOT NULL,
    from_number text    NOT NULL,
    to_number   text    NOT NULL,
    owner       uuid    NOT NULL,
    teardown    bytea,  -- what another process needs to end the leg (ADR 15); null: not sent yet, or ended
    dialed_at   timestamptz,
    answered_at timestamptz,
    ended_at    timestamptz,
    cause       text    NOT NULL DEFAULT '',
    by_us       boolean NOT NULL DEFAULT false,
    callback_at timestamptz, -- for when the person requested a callback
    hangup_at   timestamptz,
    pickup_at   timestamptz,
    counted_at  timestamptz NOT NULL DEFAULT now() -- set to now() regularly while the leg is live
);
CREATE INDEX sip_legs_live ON sip_legs (owner) WHERE ended_at IS NULL;
CREATE INDEX sip_legs_ended ON sip_legs (ended_at) WHERE ended_at IS NOT NULL;
-- The live legs of a trunk. A count reads only the entries whose counted_at is in the last ten
-- minutes, for the reason that is given at calls_inbound_live.
CREATE INDEX sip_legs_of_trunk ON sip_legs (trunk_id, counted_at) WHERE ended_at IS NULL;

-- The heartbeats of the owners of legs.
CREATE TABLE sip_leg_owners (
    owner   uuid PRIMARY KEY,
    seen_at timestamptz NOT NULL DEFAULT now()
);

-- trunk_has_channel reports whether the trunk has fewer live legs than channels. It keeps a lock on
-- the trunk until the transaction ends, so two transactions cannot take the same channel. It is
-- VOLATILE, so its count includes every row that was committed before it received the lock. The dialer
-- regularly sets counted_at of every live leg to now(). So the condition on counted_at leaves out no
-- live leg.
-- +goose StatementBegin
CREATE FUNCTION trunk_has_channel(trunk uuid, channels integer) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(current_schema() || ' trunk ' || trunk, 0));
    RETURN (SELECT count(*) < channels FROM (
        SELECT FROM sip_legs WHERE trunk_id = trunk AND ended_at IS NULL AND counted_at > now() - interval '10 minutes'
        LIMIT channels) AS live);
END $$;
-- +goose StatementEnd

-- The attempts: one row for each trunk to which an outbound call was offered, and one for each inbound
-- call. The row of an outbound attempt commits before the INVITE is sent, so it exists even after a
-- crash. It is kept longer than the leg.
CREATE TABLE sip_attempts (
    attempt_id  uuid PRIMARY KEY,
    call_id     uuid        NOT NULL,
    trunk_id    uuid        NOT NULL,
    trunk       text        NOT NULL,            -- the name of the trunk at that time
    sip_call_id text        NOT NULL,            -- the value of the SIP header Call-ID
    started_at  timestamptz NOT NULL DEFAULT now(),
    ended_at    timestamptz,
    sip_status  integer,                         -- the final response to the INVITE; null: there was none
    sip_reason  text        NOT NULL DEFAULT '',
    cause       text        NOT NULL DEFAULT '',
    by_us       boolean     NOT NULL DEFAULT false,
    error       text        NOT NULL DEFAULT ''  -- why there was no final response
);
CREATE INDEX sip_attempts_by_call ON sip_attempts (call_id);
CREATE INDEX sip_attempts_by_start ON sip_attempts (started_at);

-- An operator's request for the recorded SIP messages of a trunk, and the messages of each process.
-- The rows exist only until the request is complete. The tables are unlogged, because no row needs to
-- survive a crash.
CREATE UNLOGGED TABLE sip_trace_requests (
    request_id   uuid PRIMARY KEY,
    trunk_id     uuid NOT NULL,
    sip_call_id  text NOT NULL, -- only messages with this Call-ID; '': all
    requested_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNLOGGED TABLE sip_trace_answers (
    request_id uuid NOT NULL REFERENCES sip_trace_requests ON DELETE CASCADE,
    owner      uuid NOT NULL,
    messages   json NOT NULL,
    PRIMARY KEY (request_id, owner)
);

-- The spools: the local directories into which processes write recordings. seen_at is when a process
-- last used the directory. The id of a spool is stored in a file of the directory.
CREATE TABLE recording_spools (
    spool   uuid PRIMARY KEY,
    seen_at timestamptz NOT NULL DEFAULT now()
);

-- The recordings. The states are: recording (a process is writing the file), recorded (the file waits
-- for its upload), stored (the object is in storage), leaving (the file and the object are being
-- deleted; then the row is deleted), lost (the file cannot be reached).
CREATE TABLE recordings (
    call_id      uuid PRIMARY KEY,
    workspace_id uuid        NOT NULL,
    key          text        NOT NULL,
    spool        uuid        NOT NULL,
    state        text        NOT NULL DEFAULT 'recording' CHECK (state IN ('recording', 'recorded', 'stored', 'leaving', 'lost')),
    in_storage   boolean     NOT NULL DEFAULT false, -- whether the object can be in storage
    begun_at     timestamptz NOT NULL DEFAULT now(),
    ended_at     timestamptz,
    try_at       timestamptz NOT NULL DEFAULT now(),
    tries        integer     NOT NULL DEFAULT 0,
    erasures     uuid[]      NOT NULL DEFAULT '{}' -- the erasures to which the deletion is reported
);
CREATE INDEX recordings_to_do ON recordings (try_at) WHERE state IN ('recorded', 'leaving');
CREATE INDEX recordings_of_spool ON recordings (spool) WHERE state IN ('recording', 'recorded');
CREATE INDEX recordings_kept ON recordings (workspace_id, ended_at) WHERE state IN ('stored', 'lost');

-- The identity of the Postgres server on which this database was last reconciled with dial-intents.v1,
-- and the id of that topic. After a failover or a restore, the database runs on a server with another
-- identity. The dialer then reconciles before it dials (ADR 4).
CREATE TABLE reconciled_servers (
    one           boolean     PRIMARY KEY DEFAULT true CHECK (one), -- at most one row
    server        text        NOT NULL,
    topic_id      uuid        NOT NULL,
    reconciled_at timestamptz NOT NULL DEFAULT now()
);

-- For each partition of dial-intents.v1, an offset below which every intent has a fence in this
-- database, was withdrawn, or was settled. A reconciliation reads the partition from this offset.
CREATE TABLE intent_positions (
    partition   integer PRIMARY KEY,
    next_offset bigint  NOT NULL CHECK (next_offset >= 0)
);

-- server_identity returns the identity of the running server: system identifier, timeline and start
-- time. A promoted standby has another timeline and start time. A restored server has another start
-- time.
--
-- The function is written in PL/pgSQL, which keeps the plan of its expression for the session. An SQL
-- function would be planned again in each claim, fence and batch of events.
-- +goose StatementBegin
CREATE FUNCTION server_identity() RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN concat_ws('/', (SELECT system_identifier FROM pg_control_system()),
        substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), extract(epoch FROM pg_postmaster_start_time()));
END
$$;
-- +goose StatementEnd
