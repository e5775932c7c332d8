-- +goose Up

-- The Postgres server with which this database was last reconciled with dial-intents.v1, and the id of the topic. A
-- failover or a restore leads to a server with another identity; the dialer then reconciles before it dials.
CREATE TABLE reconciled_server (
    one           boolean     PRIMARY KEY DEFAULT true CHECK (one),
    server        text        NOT NULL,
    topic_id      uuid        NOT NULL,
    reconciled_at timestamptz NOT NULL DEFAULT now()
);

-- The offset of dial-intents.v1, for each partition, below which every intent is fenced, withdrawn or settled in this
-- database. Reconciliation reads from here.
CREATE TABLE intent_positions (
    partition   integer PRIMARY KEY,
    next_offset bigint  NOT NULL CHECK (next_offset >= 0)
);

-- The identity of the running server: system identifier, timeline and start time. A promoted standby has another
-- timeline and start time. A restored server has another start time.
CREATE FUNCTION server_identity() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT concat_ws('/', (SELECT system_identifier FROM pg_control_system()),
        substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), extract(epoch FROM pg_postmaster_start_time()))
$$;
