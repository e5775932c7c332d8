-- +goose Up

-- variables and metadata are json, not jsonb: the customer's numbers and text come back exactly as sent.
-- There is no created_at: it is the instant inside the UUIDv7.
CREATE TABLE contacts (
    id                 uuid PRIMARY KEY,
    workspace_id       uuid NOT NULL,
    phone_e164         text NOT NULL CHECK (phone_e164 ~ '^\+[1-9][0-9]{6,14}$'),
    name               text,
    name_folded        text, -- case-folded by the service, so that a search does not depend on the database's locale
    email              text,
    external_id        text,
    variables          json NOT NULL DEFAULT '{}',
    variables_revision bigint NOT NULL DEFAULT 0, -- counts merges: a merge is written only over the variables it was made from
    metadata           json NOT NULL DEFAULT '{}',
    time_zone          text, -- metadata.time_zone, kept beside it for the gates
    consent_status     text NOT NULL DEFAULT 'unknown' CHECK (consent_status IN ('unknown', 'consented', 'withdrawn')),
    dnd_status         text NOT NULL DEFAULT 'unknown' CHECK (dnd_status IN ('unknown', 'clean', 'dnd')),
    updated_at         timestamptz NOT NULL,
    CONSTRAINT contacts_number UNIQUE (workspace_id, phone_e164)
);
CREATE INDEX contacts_newest ON contacts (workspace_id, id DESC);

-- The policy in force is the newest version; none means the default window.
CREATE TABLE policies (
    workspace_id uuid NOT NULL,
    version      integer NOT NULL CHECK (version > 0),
    policy       json NOT NULL,
    operator     text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, version)
);

CREATE TABLE consent_records (
    id           uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    phone_e164   text NOT NULL,
    contact_id   uuid NOT NULL,
    kind         text NOT NULL CHECK (kind IN ('opt_out', 'opt_out_removed', 'consent_granted', 'consent_withdrawn')),
    source       text NOT NULL,
    actor        text NOT NULL,
    reason       text,
    evidence     json,
    call_id      uuid,
    before       text NOT NULL,
    after        text NOT NULL,
    occurred_at  timestamptz NOT NULL,
    -- a record speaks of one axis only
    CONSTRAINT consent_records_axis CHECK (
        CASE WHEN kind IN ('opt_out', 'opt_out_removed') THEN after IN ('clean', 'dnd') AND before IN ('unknown', 'clean', 'dnd')
             ELSE after IN ('consented', 'withdrawn') AND before IN ('unknown', 'consented', 'withdrawn') END)
);
CREATE INDEX consent_records_newest ON consent_records (workspace_id, id DESC);
CREATE INDEX consent_records_number ON consent_records (workspace_id, phone_e164, id DESC);
-- a person who asks in a call is heard once, however often the dialer says so
CREATE UNIQUE INDEX consent_records_call ON consent_records (workspace_id, call_id, kind) WHERE call_id IS NOT NULL;

-- Every judgement with all it rested on.
CREATE TABLE decisions (
    id              uuid PRIMARY KEY,
    workspace_id    uuid NOT NULL,
    call_request_id uuid NOT NULL,
    phone_e164      text NOT NULL,
    contact_id      uuid,
    kind            text NOT NULL CHECK (kind IN ('precheck', 'dial')),
    inputs          json NOT NULL,
    policy_version  integer NOT NULL, -- 0: the default, none was set
    result          text NOT NULL CHECK (result IN ('open', 'later', 'closed')),
    rule            text NOT NULL,
    code            text NOT NULL,
    message         text NOT NULL,
    call_at         timestamptz, -- when the call may be placed; null when closed
    judged_at       timestamptz NOT NULL,
    CHECK ((result = 'closed') = (call_at IS NULL)),
    CHECK ((result = 'closed') = (code <> ''))
);
CREATE INDEX decisions_request ON decisions (workspace_id, call_request_id, id);
CREATE INDEX decisions_number ON decisions (workspace_id, phone_e164, id DESC);

-- What an allowed pre-check answered, so that the same request asked again merges nothing twice. Kept 30 days.
CREATE TABLE prechecks (
    workspace_id    uuid NOT NULL,
    call_request_id uuid NOT NULL,
    phone_e164      text NOT NULL,
    contact_id      uuid NOT NULL,
    variables       json NOT NULL,
    scheduled_for   timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, call_request_id, phone_e164)
);
CREATE INDEX prechecks_age ON prechecks (created_at);

-- What the law asks to keep, the running service can only add to.
REVOKE UPDATE, DELETE, TRUNCATE ON policies, consent_records, decisions FROM contacts_compliance_app;
