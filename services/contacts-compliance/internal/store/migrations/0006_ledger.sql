-- +goose Up

-- The consent ledger: each workspace's records are a chain, every row signed together with the row before it (internal/ledger) under a key
-- that is not in this database. What was written before has no signature: it waits in consent_unchained until the service puts it into
-- the workspace's chain, behind a row that says how many records they were and their digest.
ALTER TABLE consent_records RENAME TO consent_unchained;
ALTER INDEX consent_records_pkey RENAME TO consent_unchained_pkey;
DROP INDEX consent_records_newest, consent_records_number, consent_records_call;
CREATE INDEX consent_unchained_workspace ON consent_unchained (workspace_id, id);
REVOKE INSERT ON consent_unchained FROM contacts_compliance_app;
GRANT DELETE ON consent_unchained TO contacts_compliance_app;

-- One partition a month (UTC) of recorded_at, consent_records_<YYYYMM>. Within a workspace recorded_at never goes back, so a month that is
-- dropped is the beginning of every chain that has rows in it. phone_e164 and contact_id are null where a row speaks of many numbers.
CREATE TABLE consent_records (
    workspace_id uuid NOT NULL,
    seq          bigint NOT NULL CHECK (seq > 0),
    recorded_at  timestamptz NOT NULL,
    id           uuid NOT NULL,
    phone_e164   text,
    contact_id   uuid,
    kind         text NOT NULL CONSTRAINT consent_records_kind CHECK (kind IN ('opt_out', 'opt_out_removed', 'consent_granted', 'consent_withdrawn', 'chain_started')),
    source       text NOT NULL,
    actor        text NOT NULL,
    reason       text,
    evidence     json,
    call_id      uuid,
    before       text,
    after        text,
    occurred_at  timestamptz NOT NULL,
    key_id       text NOT NULL,
    mac          bytea NOT NULL CHECK (length(mac) = 32),
    PRIMARY KEY (workspace_id, seq, recorded_at),
    CONSTRAINT consent_records_many CHECK ((phone_e164 IS NULL) = (contact_id IS NULL)),
    -- a record speaks of one axis only; of many numbers at once there is no before
    CONSTRAINT consent_records_axis CHECK (
        CASE WHEN kind = 'chain_started' THEN phone_e164 IS NULL AND before IS NULL AND after IS NULL
             WHEN kind IN ('opt_out', 'opt_out_removed')
             THEN after IN ('clean', 'dnd') AND (before IN ('unknown', 'clean', 'dnd') OR before IS NULL AND phone_e164 IS NULL)
             ELSE after IN ('consented', 'withdrawn') AND before IN ('unknown', 'consented', 'withdrawn') AND phone_e164 IS NOT NULL END IS TRUE)
) PARTITION BY RANGE (recorded_at);
CREATE TABLE consent_records_rest PARTITION OF consent_records DEFAULT;
CREATE INDEX consent_records_newest ON consent_records (workspace_id, id DESC);
CREATE INDEX consent_records_number ON consent_records (workspace_id, phone_e164, id DESC);
-- a person who asks in a call is heard once, however often the dialer says so: looked up under the lock of the workspace's head
CREATE INDEX consent_records_call ON consent_records (workspace_id, call_id) WHERE call_id IS NOT NULL;

-- The end of each workspace's chain; appends of one workspace go one after the other behind the lock of this row.
CREATE TABLE consent_heads (
    workspace_id uuid PRIMARY KEY,
    seq          bigint NOT NULL CHECK (seq >= 0),
    mac          bytea NOT NULL,
    moved_at     timestamptz NOT NULL,
    key_id       text NOT NULL,
    sum          bytea NOT NULL -- signs workspace, seq and mac; an earlier row's own signature will not do
) WITH (fillfactor = 50);

-- Where a chain starts once its oldest rows were dropped with their month.
CREATE TABLE consent_starts (
    workspace_id uuid PRIMARY KEY,
    seq          bigint NOT NULL CHECK (seq > 0),
    mac          bytea NOT NULL,
    dropped_at   timestamptz NOT NULL DEFAULT now(),
    key_id       text NOT NULL,
    sum          bytea NOT NULL
);

-- What the law asks to keep, the running service can only add to; it reaches partitions through their table.
REVOKE UPDATE, DELETE, TRUNCATE ON consent_records FROM contacts_compliance_app;
REVOKE ALL ON consent_records_rest FROM contacts_compliance_app;
REVOKE DELETE, TRUNCATE ON consent_heads, consent_starts FROM contacts_compliance_app;
