-- +goose Up

-- The people who use the console. A person signs in through an OpenID provider (issuer and subject),
-- with a passkey, or with a code of the local stack.
CREATE TABLE people (
    id         uuid PRIMARY KEY,
    name       text        NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    -- Only displayed. A person is never identified by the email address.
    email      text CHECK (char_length(email) <= 320),
    issuer     text,
    subject    text,
    created_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((issuer IS NULL) = (subject IS NULL)),
    UNIQUE (issuer, subject)
);

CREATE TABLE memberships (
    person_id    uuid        NOT NULL REFERENCES people (id) ON DELETE CASCADE,
    -- NULL: the person is an operator, for all workspaces.
    workspace_id uuid REFERENCES workspaces (id),
    role         text        NOT NULL CHECK (role IN ('operator', 'owner', 'developer', 'compliance', 'viewer')),
    -- The groups of the OpenID provider gave the role. The next sign-in can change or remove it.
    from_groups  boolean     NOT NULL DEFAULT false,
    created_at   timestamptz NOT NULL DEFAULT now(),
    CHECK ((role = 'operator') = (workspace_id IS NULL)),
    UNIQUE NULLS NOT DISTINCT (person_id, workspace_id)
);
CREATE INDEX memberships_by_workspace ON memberships (workspace_id, person_id);

-- The sessions that are not revoked. A revoked session is deleted.
CREATE TABLE sessions (
    id           uuid PRIMARY KEY,
    -- SHA-256 of the token. The token has 256 random bits.
    hash         bytea       NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    person_id    uuid        NOT NULL REFERENCES people (id) ON DELETE CASCADE,
    method       text        NOT NULL CHECK (method IN ('oidc', 'passkey', 'code')),
    signed_in_at timestamptz NOT NULL DEFAULT now(),
    last_used_at timestamptz NOT NULL DEFAULT now(),
    -- A role of the person has changed. The next request replaces the token.
    replace      boolean     NOT NULL DEFAULT false,
    -- The time at which the token was replaced. Concurrent requests can use the old token for a few
    -- seconds more.
    replaced_at  timestamptz
);
CREATE INDEX sessions_by_person ON sessions (person_id, id);
CREATE INDEX sessions_by_use ON sessions (last_used_at);

-- The one-time sign-in codes of the local stack. A used code is deleted.
CREATE TABLE sign_in_codes (
    hash       bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    person_id  uuid        NOT NULL REFERENCES people (id) ON DELETE CASCADE,
    expires_at timestamptz NOT NULL
);

CREATE TABLE invitations (
    id           uuid PRIMARY KEY,
    -- SHA-256 of the token in the link.
    hash         bytea       NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    workspace_id uuid REFERENCES workspaces (id),
    -- NULL: the invitation gives no role. It lets person_id register a new passkey.
    role         text CHECK (role IN ('operator', 'owner', 'developer', 'compliance', 'viewer')),
    -- The person whose passkey is lost. NULL: any person can accept the invitation.
    person_id    uuid REFERENCES people (id) ON DELETE CASCADE,
    invited_by   text        NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz NOT NULL,
    accepted_at  timestamptz,
    accepted_by  uuid,
    CHECK ((role IS NULL) = (person_id IS NOT NULL)),
    CHECK (role IS NULL OR (role = 'operator') = (workspace_id IS NULL)),
    CHECK ((accepted_at IS NULL) = (accepted_by IS NULL))
);
CREATE INDEX invitations_by_workspace ON invitations (workspace_id, id);

CREATE TABLE passkeys (
    -- The id of the WebAuthn credential.
    id           bytea PRIMARY KEY CHECK (octet_length(id) BETWEEN 1 AND 1023),
    person_id    uuid        NOT NULL REFERENCES people (id) ON DELETE CASCADE,
    name         text        NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    -- The public key, the flags and the signature counter.
    credential   json        NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    last_used_at timestamptz
);
CREATE INDEX passkeys_by_person ON passkeys (person_id, created_at);

-- Sign-ins and passkey registrations that have started. The request that finishes one deletes the row.
CREATE TABLE sign_in_attempts (
    -- SHA-256 of the secret that the browser keeps.
    hash       bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    kind       text        NOT NULL CHECK (kind IN ('oidc', 'passkey', 'registration')),
    -- The state that the finish needs: the challenge of a passkey, or the verifier and nonce of OpenID Connect.
    state      json        NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX sign_in_attempts_by_expiry ON sign_in_attempts (expires_at);
