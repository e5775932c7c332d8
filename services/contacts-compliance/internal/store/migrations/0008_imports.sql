-- +goose Up

-- A list of people who must not be called, from its first part to the one consent record that says all of them are opted out.
CREATE TABLE opt_out_imports (
    id           uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    status       text NOT NULL DEFAULT 'receiving' CHECK (status IN ('receiving', 'reading', 'applying', 'done', 'failed')),
    actor        text NOT NULL,
    reason       text,
    bytes        bigint NOT NULL DEFAULT 0, -- of what was received
    lines        bigint NOT NULL DEFAULT 0, -- read so far
    bad          bigint NOT NULL DEFAULT 0,
    bad_rows     json NOT NULL DEFAULT '[]', -- the first of them
    numbers      bigint NOT NULL DEFAULT 0, -- each counted once
    applied      bigint NOT NULL DEFAULT 0,
    applied_to   text NOT NULL DEFAULT '', -- the last number that was opted out
    since_seq    bigint, -- the head of the ledger before the first was
    file_sha256  text,
    list_sha256  text,
    same_as      uuid, -- the same file was imported before, and all of it still holds
    record_id    uuid,
    claim        uuid,
    claimed_till timestamptz,
    updated_at   timestamptz NOT NULL DEFAULT now(),
    done_at      timestamptz,
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

-- What the record of an import speaks of: list_sha256 is the SHA-256 of these in this order, each with a line's end.
CREATE TABLE opt_out_import_numbers (
    import_id  uuid NOT NULL,
    phone_e164 text COLLATE "C" NOT NULL,
    PRIMARY KEY (import_id, phone_e164)
);
REVOKE UPDATE, TRUNCATE ON opt_out_import_numbers FROM contacts_compliance_app;
