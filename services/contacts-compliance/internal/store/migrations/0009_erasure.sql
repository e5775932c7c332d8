-- +goose Up

-- How often the person was erased. A pre-check is answered with it, so that everybody can tell what was placed before an erasure from what was placed since.
ALTER TABLE contacts ADD COLUMN erasures bigint NOT NULL DEFAULT 0;
ALTER TABLE prechecks ADD COLUMN erasures bigint NOT NULL DEFAULT 0;
CREATE INDEX contacts_erased ON contacts (workspace_id, phone_e164) WHERE erasures > 0;

-- The register: that a person was erased, who asked for it, and who has carried it out; without the person. subject is their number under a key that is not in
-- the database. contact_id stands only until it is carried out: whom to tell of again.
CREATE TABLE erasures (
    id           uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    key_id       text NOT NULL,
    subject      bytea NOT NULL CHECK (length(subject) = 32),
    actor        text NOT NULL,
    contact_id   uuid,
    erasures     bigint NOT NULL CHECK (erasures > 0),
    requested_at timestamptz NOT NULL,
    told_at      timestamptz NOT NULL,
    done_at      timestamptz,
    CHECK ((contact_id IS NULL) = (done_at IS NOT NULL))
);
CREATE INDEX erasures_newest ON erasures (workspace_id, id DESC);
CREATE INDEX erasures_subject ON erasures (workspace_id, subject, id DESC);
CREATE INDEX erasures_open ON erasures (told_at) WHERE done_at IS NULL;

-- What is to be done, and by whom: each report closes one step and opens those that follow from it. They go when all are closed, since ref names a call or a
-- request; what stays is how many each service had, and when its last was done.
CREATE TABLE erasure_steps (
    erasure_id uuid NOT NULL,
    service    text NOT NULL,
    ref        text NOT NULL,
    done_at    timestamptz,
    PRIMARY KEY (erasure_id, service, ref)
);
CREATE TABLE erasure_services (
    erasure_id uuid NOT NULL,
    service    text NOT NULL,
    steps      bigint NOT NULL,
    done_at    timestamptz NOT NULL,
    PRIMARY KEY (erasure_id, service)
);
REVOKE DELETE, TRUNCATE ON erasures FROM contacts_compliance_app;
REVOKE UPDATE, DELETE, TRUNCATE ON erasure_services FROM contacts_compliance_app;
