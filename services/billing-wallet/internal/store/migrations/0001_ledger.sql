-- +goose Up

-- One row a workspace with the four accounts of the ledger side by side: one lock, and their sum is
-- always zero. wallet is spendable, held is promised to open holds, revenue is what calls cost,
-- funding is the counter account of top-ups and adjustments (what customers paid in, negative).
CREATE TABLE wallets (
    workspace_id        uuid PRIMARY KEY,
    currency            text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    wallet_micro        bigint NOT NULL DEFAULT 0 CHECK (wallet_micro >= 0),
    held_micro          bigint NOT NULL DEFAULT 0 CHECK (held_micro >= 0),
    revenue_micro       bigint NOT NULL DEFAULT 0 CHECK (revenue_micro >= 0),
    funding_micro       bigint NOT NULL DEFAULT 0,
    last_transaction_at timestamptz,
    created_at          timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT wallets_sum_to_zero CHECK (wallet_micro + held_micro + revenue_micro + funding_micro = 0)
) WITH (fillfactor = 50); -- updated by every hold: leave room for updates on the page

-- The journal: a row is one transaction with its entries as columns, so that "sums to zero" is a CHECK
-- of the row and not a promise between rows. created_at is the instant inside the id (UUIDv7).
CREATE TABLE transactions (
    id            uuid PRIMARY KEY,
    workspace_id  uuid NOT NULL REFERENCES wallets,
    kind          text NOT NULL,
    reference     text CHECK (char_length(reference) BETWEEN 1 AND 255),
    operator      text,
    request_id    uuid,
    wallet_micro  bigint NOT NULL,
    held_micro    bigint NOT NULL,
    revenue_micro bigint NOT NULL,
    funding_micro bigint NOT NULL,
    CONSTRAINT transactions_sum_to_zero CHECK (wallet_micro + held_micro + revenue_micro + funding_micro = 0),
    CONSTRAINT transactions_shape CHECK (CASE kind
        WHEN 'top_up'     THEN wallet_micro > 0 AND held_micro = 0 AND revenue_micro = 0
        WHEN 'adjustment' THEN wallet_micro <> 0 AND held_micro = 0 AND revenue_micro = 0
        WHEN 'hold'       THEN held_micro >= 0 AND revenue_micro = 0 AND funding_micro = 0
        WHEN 'capture'    THEN held_micro < 0 AND wallet_micro >= 0 AND revenue_micro > 0 AND funding_micro = 0
        WHEN 'release'    THEN held_micro <= 0 AND revenue_micro = 0 AND funding_micro = 0
        ELSE false END),
    CONSTRAINT transactions_cause CHECK (CASE WHEN kind IN ('top_up', 'adjustment')
        THEN reference IS NOT NULL AND operator IS NOT NULL AND request_id IS NULL
        ELSE request_id IS NOT NULL AND reference IS NULL AND operator IS NULL END)
);
CREATE UNIQUE INDEX transactions_reference ON transactions (workspace_id, reference) WHERE reference IS NOT NULL;
CREATE UNIQUE INDEX transactions_held ON transactions (request_id) WHERE kind = 'hold';
CREATE UNIQUE INDEX transactions_settled ON transactions (request_id) WHERE kind IN ('capture', 'release');
CREATE INDEX transactions_page ON transactions (workspace_id, id);
REVOKE UPDATE, DELETE, TRUNCATE ON transactions FROM billing_wallet_app;

-- The same journal, an entry a row, for whoever sums by account.
CREATE VIEW entries AS
SELECT t.id AS transaction_id, t.workspace_id, e.account, e.amount_micro
FROM transactions t
CROSS JOIN LATERAL (VALUES ('wallet', t.wallet_micro), ('held', t.held_micro),
                           ('revenue', t.revenue_micro), ('funding', t.funding_micro)) AS e (account, amount_micro)
WHERE e.amount_micro <> 0;
REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON entries FROM billing_wallet_app;

-- A hold lives until its request ends. What was agreed is frozen: the running role may change only
-- what becomes of it.
CREATE TABLE holds (
    request_id        uuid PRIMARY KEY,
    workspace_id      uuid NOT NULL REFERENCES wallets,
    amount_micro      bigint NOT NULL CHECK (amount_micro >= 0),
    currency          text NOT NULL,
    per_minute_micro  bigint NOT NULL CHECK (per_minute_micro >= 0),
    increment_seconds integer NOT NULL CHECK (increment_seconds >= 1),
    max_call_seconds  integer NOT NULL CHECK (max_call_seconds >= 1),
    state             text NOT NULL CHECK (state IN ('held', 'captured', 'released')),
    captured_micro    bigint CHECK (captured_micro BETWEEN 1 AND amount_micro),
    call_id           uuid,
    created_at        timestamptz NOT NULL DEFAULT now(),
    confirmed_at      timestamptz, -- requested was seen
    unconfirmed_at    timestamptz, -- calls was last asked
    settled_at        timestamptz,
    CHECK ((state = 'captured') = (captured_micro IS NOT NULL)),
    CHECK ((state = 'held') = (settled_at IS NULL))
);
CREATE INDEX holds_open ON holds (workspace_id) WHERE state = 'held';
CREATE INDEX holds_unconfirmed ON holds (created_at) WHERE state = 'held' AND confirmed_at IS NULL;
REVOKE UPDATE, DELETE, TRUNCATE ON holds FROM billing_wallet_app;
GRANT UPDATE (state, captured_micro, call_id, confirmed_at, unconfirmed_at, settled_at) ON holds TO billing_wallet_app;

-- News of ended requests waiting to be posted, a workspace at a time. Insert only for the consumers, so that a
-- batch of records of many workspaces locks no wallet. No unique key: a hold settles once, whatever stands here.
CREATE TABLE verdicts (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace_id     uuid NOT NULL,
    request_id       uuid NOT NULL,
    reason           text NOT NULL,
    billable_seconds integer NOT NULL CHECK (billable_seconds >= 0),
    call_id          uuid,
    traceparent      text NOT NULL DEFAULT '',
    noted_at         timestamptz NOT NULL DEFAULT now()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000); -- a queue: always nearly empty
CREATE INDEX verdicts_workspace ON verdicts (workspace_id, id);

CREATE TABLE rates (
    workspace_id      uuid NOT NULL,
    prefix            text NOT NULL CHECK (prefix ~ '^\+[1-9][0-9]{0,14}$'),
    per_minute_micro  bigint NOT NULL CHECK (per_minute_micro >= 0),
    increment_seconds integer NOT NULL CHECK (increment_seconds BETWEEN 1 AND 3600),
    PRIMARY KEY (workspace_id, prefix)
);
