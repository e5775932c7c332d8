-- +goose Up

-- variables and metadata are json, not jsonb: numbers and key order are returned as the client sent
-- them. The creation time is the timestamp in the UUIDv7 of id.
CREATE TABLE contacts (
    id                 uuid PRIMARY KEY,
    workspace_id       uuid NOT NULL,
    phone_e164         text NOT NULL CHECK (phone_e164 ~ '^\+[1-9][0-9]{6,14}$'),
    name               text,
    name_folded        text, -- case-folded by the service: a search does not depend on the database's locale
    email              text,
    external_id        text,
    variables          json NOT NULL DEFAULT '{}',
    variables_revision bigint NOT NULL DEFAULT 0, -- counts changes of variables, for optimistic locking
    metadata           json NOT NULL DEFAULT '{}',
    time_zone          text, -- a copy of metadata.time_zone for the gates
    consent_status     text NOT NULL DEFAULT 'unknown' CHECK (consent_status IN ('unknown', 'consented', 'withdrawn')),
    dnd_status         text NOT NULL DEFAULT 'unknown' CHECK (dnd_status IN ('unknown', 'clean', 'dnd')),
    updated_at         timestamptz NOT NULL,
    erasures           bigint NOT NULL DEFAULT 0, -- how often the person was erased
    CONSTRAINT contacts_number UNIQUE (workspace_id, phone_e164)
);
-- Lists are ordered by the bytes of id. The primary key cannot serve that order, so a query never
-- reads the contacts of other workspaces.
CREATE INDEX contacts_states ON contacts (workspace_id, dnd_status, consent_status, uuid_send(id));
-- Contacts that a call created have no name. They are in neither of the next two indexes.
CREATE INDEX contacts_named ON contacts (workspace_id, uuid_send(id)) WHERE name_folded IS NOT NULL;
CREATE INDEX contacts_erased ON contacts (workspace_id, phone_e164) WHERE erasures > 0;

-- Returns a hash of each substring of one to three characters of a name. The hash includes the
-- workspace and the states, because every search by name filters by them. pg_trgm is not used: it
-- needs a right on the database and has no pieces shorter than three characters.
-- +goose StatementBegin
CREATE FUNCTION name_grams(workspace uuid, dnd text, consent text, name text) RETURNS bigint[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE COST 1000 AS $$
    SELECT array_agg(DISTINCT hashtextextended(workspace::text || dnd || ' ' || consent || ' ' || substr(name, start, size), 0))
    FROM generate_series(1, length(name)) AS start, generate_series(1, 3) AS size
    WHERE start + size - 1 <= length(name)
$$;
-- +goose StatementEnd
CREATE INDEX contacts_name_grams ON contacts USING gin (name_grams(workspace_id, dnd_status, consent_status, name_folded))
    WITH (gin_pending_list_limit = 256) WHERE name_folded IS NOT NULL;

-- The newest version is in force. A workspace without a row has the default policy.
CREATE TABLE policies (
    workspace_id uuid NOT NULL,
    version      integer NOT NULL CHECK (version > 0),
    policy       json NOT NULL,
    operator     text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, version)
);

-- The version of the workspace that set the policy in force. A policy of an older version that
-- arrives late is ignored.
CREATE TABLE policy_sources (
    workspace_id   uuid PRIMARY KEY,
    set_in_version bigint NOT NULL CHECK (set_in_version > 0)
);

-- Each decision with the inputs of the gates. The partitions are months (UTC) of judged_at. The
-- default partition takes rows outside of all months, for example if a clock is wrong.
CREATE TABLE decisions (
    id              uuid NOT NULL,
    workspace_id    uuid NOT NULL,
    call_request_id uuid NOT NULL,
    phone_e164      text NOT NULL,
    contact_id      uuid,
    kind            text NOT NULL CHECK (kind IN ('precheck', 'dial')),
    inputs          json NOT NULL,
    policy_version  integer NOT NULL, -- 0: the default policy
    result          text NOT NULL CHECK (result IN ('open', 'later', 'closed')),
    rule            text NOT NULL,
    code            text NOT NULL,
    message         text NOT NULL,
    call_at         timestamptz, -- the earliest time of the call; null if the result is closed
    judged_at       timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, id, judged_at),
    CHECK ((result = 'closed') = (call_at IS NULL)),
    CHECK ((result = 'closed') = (code <> ''))
) PARTITION BY RANGE (judged_at);
CREATE TABLE decisions_default PARTITION OF decisions DEFAULT;
CREATE INDEX decisions_request ON decisions (workspace_id, call_request_id, id);
CREATE INDEX decisions_number ON decisions (workspace_id, phone_e164, id DESC);

-- The results of allowed pre-checks. A repeated pre-check returns the stored result and does not merge
-- variables again. Rows are deleted after 30 days.
CREATE TABLE pre_checks (
    workspace_id    uuid NOT NULL,
    call_request_id uuid NOT NULL,
    phone_e164      text NOT NULL,
    contact_id      uuid NOT NULL,
    variables       json NOT NULL,
    scheduled_for   timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    erasures        bigint NOT NULL DEFAULT 0, -- contacts.erasures at the time of the pre-check
    PRIMARY KEY (workspace_id, call_request_id, phone_e164)
);
CREATE INDEX pre_checks_created ON pre_checks (created_at);

-- The consent ledger. The records of a workspace form a chain: mac covers the row and the mac of the
-- row before. The key is not in the database (internal/consentchain). The partitions are months (UTC)
-- of recorded_at. recorded_at never decreases within a workspace, so dropping a month removes the
-- oldest rows of each chain. phone_e164 and contact_id are null in the record of an import.
CREATE TABLE consent_records (
    workspace_id uuid NOT NULL,
    seq          bigint NOT NULL CHECK (seq > 0),
    recorded_at  timestamptz NOT NULL,
    id           uuid NOT NULL,
    phone_e164   text,
    contact_id   uuid,
    kind         text NOT NULL CONSTRAINT consent_records_kind CHECK (
        kind IN ('opt_out', 'opt_out_removed', 'consent_granted', 'consent_withdrawn')),
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
    -- A record changes either DND or consent. The record of an import has no value before.
    CONSTRAINT consent_records_axis CHECK (
        CASE WHEN kind IN ('opt_out', 'opt_out_removed')
             THEN after IN ('clean', 'dnd') AND (before IN ('unknown', 'clean', 'dnd') OR before IS NULL AND phone_e164 IS NULL)
             ELSE after IN ('consented', 'withdrawn') AND before IN ('unknown', 'consented', 'withdrawn') AND phone_e164 IS NOT NULL END IS TRUE)
) PARTITION BY RANGE (recorded_at);
CREATE TABLE consent_records_default PARTITION OF consent_records DEFAULT;
CREATE INDEX consent_records_newest ON consent_records (workspace_id, id DESC);
CREATE INDEX consent_records_number ON consent_records (workspace_id, phone_e164, id DESC);
-- An opt-out in a call is recorded once. The service looks up the call while it holds the lock of the
-- workspace's head, because a unique index of a partitioned table must include recorded_at.
CREATE INDEX consent_records_call ON consent_records (workspace_id, call_id) WHERE call_id IS NOT NULL;

-- The last row of each workspace's chain. A transaction locks this row before it appends.
CREATE TABLE consent_heads (
    workspace_id uuid PRIMARY KEY,
    seq          bigint NOT NULL CHECK (seq >= 0),
    mac          bytea NOT NULL,
    moved_at     timestamptz NOT NULL,
    key_id       text NOT NULL,
    sum          bytea NOT NULL -- HMAC over workspace_id, seq and mac
) WITH (fillfactor = 50);

-- The last row that was dropped with its month. The chain continues after it.
CREATE TABLE consent_starts (
    workspace_id uuid PRIMARY KEY,
    seq          bigint NOT NULL CHECK (seq > 0),
    mac          bytea NOT NULL,
    dropped_at   timestamptz NOT NULL DEFAULT now(),
    key_id       text NOT NULL,
    sum          bytea NOT NULL -- HMAC over workspace_id, seq and mac
);

-- An imported list of numbers to opt out. One consent record covers all numbers of the list.
CREATE TABLE opt_out_imports (
    id            uuid PRIMARY KEY,
    workspace_id  uuid NOT NULL,
    status        text NOT NULL DEFAULT 'receiving' CHECK (status IN ('receiving', 'reading', 'applying', 'done', 'failed')),
    actor         text NOT NULL,
    reason        text,
    bytes         bigint NOT NULL DEFAULT 0, -- received so far
    lines         bigint NOT NULL DEFAULT 0, -- read so far
    bad           bigint NOT NULL DEFAULT 0, -- lines without a valid number
    bad_rows      json NOT NULL DEFAULT '[]', -- the first bad lines
    numbers       bigint NOT NULL DEFAULT 0, -- different numbers
    applied       bigint NOT NULL DEFAULT 0, -- numbers that are opted out
    applied_to    text NOT NULL DEFAULT '', -- the last of these numbers
    since_seq     bigint, -- the seq of the workspace's head before the first number was opted out
    file_sha256   text,
    list_sha256   text,
    same_as       uuid, -- an earlier import of the same file whose numbers were still opted out
    record_id     uuid,
    claim         uuid,
    claimed_until timestamptz,
    updated_at    timestamptz NOT NULL DEFAULT now(),
    done_at       timestamptz,
    CHECK (status <> 'done' OR (record_id IS NOT NULL) <> (same_as IS NOT NULL))
);
CREATE INDEX opt_out_imports_newest ON opt_out_imports (workspace_id, id DESC);
CREATE INDEX opt_out_imports_open ON opt_out_imports (id) WHERE status IN ('reading', 'applying');

CREATE TABLE opt_out_import_parts (
    import_id uuid NOT NULL,
    part      integer NOT NULL CHECK (part > 0),
    content   bytea NOT NULL,
    PRIMARY KEY (import_id, part)
);

-- The numbers that the consent record of an import covers. list_sha256 is the SHA-256 of these numbers
-- in this order, each followed by a line feed.
CREATE TABLE opt_out_import_numbers (
    import_id  uuid NOT NULL,
    phone_e164 text COLLATE "C" NOT NULL,
    PRIMARY KEY (import_id, phone_e164)
);

-- After an import has a consent record, its row and its numbers prove what the record covers. These
-- triggers refuse to change or delete them. Only a superuser can disable the triggers.
-- +goose StatementBegin
CREATE FUNCTION refuse_import_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'an import with a consent record cannot be changed or deleted' USING ERRCODE = 'insufficient_privilege';
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION refuse_import_numbers_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM opt_out_imports i WHERE i.record_id IS NOT NULL AND i.id IN (SELECT d.import_id FROM deleted d)) THEN
        RAISE EXCEPTION 'the numbers of an import with a consent record cannot be deleted' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER opt_out_imports_kept BEFORE UPDATE OR DELETE ON opt_out_imports
    FOR EACH ROW WHEN (OLD.record_id IS NOT NULL) EXECUTE FUNCTION refuse_import_change();
CREATE TRIGGER opt_out_import_numbers_kept AFTER DELETE ON opt_out_import_numbers
    REFERENCING OLD TABLE AS deleted FOR EACH STATEMENT EXECUTE FUNCTION refuse_import_numbers_delete();

-- The register of erasures. It does not contain the number: subject is an HMAC of the workspace and the
-- number, under a key that is not in the database. contact_id is kept until the erasure is done, to
-- publish the event again.
CREATE TABLE erasures (
    id           uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    key_id       text NOT NULL,
    subject      bytea NOT NULL CHECK (length(subject) = 32),
    actor        text NOT NULL,
    contact_id   uuid,
    erasures     bigint NOT NULL CHECK (erasures > 0), -- contacts.erasures after this erasure
    requested_at timestamptz NOT NULL,
    published_at timestamptz NOT NULL, -- the last time that the event was published
    done_at      timestamptz,
    CHECK ((contact_id IS NULL) = (done_at IS NOT NULL))
);
CREATE INDEX erasures_newest ON erasures (workspace_id, id DESC);
CREATE INDEX erasures_subject ON erasures (workspace_id, subject, id DESC);
CREATE INDEX erasures_open ON erasures (published_at) WHERE done_at IS NULL;

-- The steps of an open erasure. A service's report closes one step and adds the steps that follow. ref
-- identifies a call or a request, so all steps are deleted when the erasure is done.
CREATE TABLE erasure_steps (
    erasure_id uuid NOT NULL,
    service    text NOT NULL,
    ref        text NOT NULL,
    done_at    timestamptz,
    PRIMARY KEY (erasure_id, service, ref)
);

-- The number of steps of each service in a finished erasure.
CREATE TABLE erasure_services (
    erasure_id uuid NOT NULL,
    service    text NOT NULL,
    steps      bigint NOT NULL,
    done_at    timestamptz NOT NULL,
    PRIMARY KEY (erasure_id, service)
);

-- The service adds and drops monthly partitions through the next functions, because only the owner of
-- the schema may create and drop tables. Each call changes one table. The advisory lock makes replicas
-- wait for each other. lock_timeout limits how long other transactions wait behind a pending
-- exclusive lock.

-- Returns the partition key of a table with monthly partitions.
-- +goose StatementBegin
CREATE FUNCTION month_column(parent text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    CASE parent
        WHEN 'consent_records' THEN RETURN 'recorded_at';
        WHEN 'decisions' THEN RETURN 'judged_at';
        ELSE RAISE EXCEPTION '% has no monthly partitions', parent USING ERRCODE = 'invalid_parameter_value';
    END CASE;
END $$;
-- +goose StatementEnd

-- Creates the partition of a month and returns true, or returns false if the partition exists. Rows of
-- that month in the default partition move to the new partition. Only then is the table locked
-- exclusively.
-- +goose StatementBegin
CREATE FUNCTION add_month(parent text, month date) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = contacts_compliance, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    key   text := month_column(parent);
    name  text := parent || '_' || to_char(month, 'YYYYMM');
    since timestamptz := date_trunc('month', month::timestamp) AT TIME ZONE 'UTC';
    until timestamptz := (date_trunc('month', month::timestamp) + interval '1 month') AT TIME ZONE 'UTC';
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('contacts_compliance months', 0));
    IF to_regclass(name) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', name, parent);
    EXECUTE format('REVOKE ALL ON %I FROM contacts_compliance_app', name);
    BEGIN
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, name, since, until);
    EXCEPTION WHEN check_violation THEN -- the default partition contains rows of that month
        EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', parent);
        EXECUTE format('INSERT INTO %I SELECT o.* FROM %I o WHERE o.%I >= $1 AND o.%I < $2', name, parent || '_default', key, key) USING since, until;
        EXECUTE format('DELETE FROM %I o WHERE o.%I >= $1 AND o.%I < $2', parent || '_default', key, key) USING since, until;
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, name, since, until);
    END;
    RETURN true;
END $$;
-- +goose StatementEnd

-- Returns the oldest month that ended on or before a day, or null if there is none.
-- +goose StatementBegin
CREATE FUNCTION oldest_month(parent text, before date) RETURNS date LANGUAGE sql STABLE AS $$
    SELECT min(month)::date FROM (
        SELECT to_date(right(c.relname, 6), 'YYYYMM') AS month
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = to_regclass(parent) AND c.relname ~ '_[0-9]{6}$'
    ) AS months
    WHERE month_column(parent) <> '' AND month + interval '1 month' <= before
$$;
-- +goose StatementEnd

-- Drops the partition of a month and returns true, or returns false if there is none. It refuses to
-- drop a month that ended less than five years ago.
-- +goose StatementBegin
CREATE FUNCTION drop_month(parent text, month date) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = contacts_compliance, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    name text := parent || '_' || to_char(month, 'YYYYMM');
BEGIN
    PERFORM month_column(parent);
    IF date_trunc('month', month::timestamp) + interval '5 years 1 month' > (now() AT TIME ZONE 'UTC') THEN
        RAISE EXCEPTION '% must be kept for five years', name USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('contacts_compliance months', 0));
    IF to_regclass(name) IS NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', parent);
    EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', parent, name);
    EXECUTE format('DROP TABLE %I', name);
    RETURN true;
END $$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION add_month(text, date), drop_month(text, date) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION add_month(text, date), drop_month(text, date) TO contacts_compliance_app;

-- Records that the law requires must not be rewritten, so the service's role may only add to them. It
-- reaches the partitions through their parent.
REVOKE UPDATE, DELETE, TRUNCATE ON policies, consent_records, decisions FROM contacts_compliance_app;
REVOKE ALL ON consent_records_default, decisions_default FROM contacts_compliance_app;
REVOKE DELETE, TRUNCATE ON consent_heads, consent_starts, erasures FROM contacts_compliance_app;
REVOKE UPDATE, TRUNCATE ON opt_out_import_numbers FROM contacts_compliance_app;
REVOKE TRUNCATE ON opt_out_imports FROM contacts_compliance_app;
REVOKE UPDATE, DELETE, TRUNCATE ON erasure_services FROM contacts_compliance_app;

-- The partitions of this month and the next. The service adds later months.
-- +goose StatementBegin
DO $$
DECLARE
    month date := date_trunc('month', now() AT TIME ZONE 'UTC')::date;
BEGIN
    PERFORM add_month('decisions', month), add_month('decisions', (month + interval '1 month')::date);
    PERFORM add_month('consent_records', month), add_month('consent_records', (month + interval '1 month')::date);
END $$;
-- +goose StatementEnd
