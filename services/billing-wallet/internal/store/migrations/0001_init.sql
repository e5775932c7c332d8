-- +goose Up

-- One row for each workspace, with the balances of its four ledger accounts. A lock on the row covers
-- all four accounts, and a CHECK keeps their sum at zero. wallet_micro is the spendable credit.
-- held_micro is the credit that open holds reserve. revenue_micro is the credit that was charged for
-- calls. funding_micro is the contra account of top-ups and adjustments: the amount that the customer
-- paid in, with a negative sign.
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
) WITH (fillfactor = 50); -- every hold updates the row; free space keeps the update on its page
-- The role billing_wallet_app, which the service uses at run time, inserts wallets and changes their
-- balances. It cannot delete a wallet or change its workspace.
REVOKE UPDATE, DELETE, TRUNCATE ON wallets FROM billing_wallet_app;
GRANT UPDATE (currency, wallet_micro, held_micro, revenue_micro, funding_micro, last_transaction_at) ON wallets TO billing_wallet_app;

-- The ledger. A row is one transaction with its four entries as columns, so that a CHECK of the row can
-- require that the entries sum to zero. The time of a transaction is the time in its id (UUIDv7).
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
-- A request has one hold, and one capture or release.
CREATE UNIQUE INDEX transactions_held ON transactions (request_id) WHERE kind = 'hold';
CREATE UNIQUE INDEX transactions_settled ON transactions (request_id) WHERE kind IN ('capture', 'release');
CREATE INDEX transactions_page ON transactions (workspace_id, id);
REVOKE UPDATE, DELETE, TRUNCATE ON transactions FROM billing_wallet_app;

-- The ledger with one row for each entry, for sums by account.
CREATE VIEW ledger_entries AS
SELECT t.id AS transaction_id, t.workspace_id, e.account, e.amount_micro
FROM transactions t
CROSS JOIN LATERAL (VALUES ('wallet', t.wallet_micro), ('held', t.held_micro),
                           ('revenue', t.revenue_micro), ('funding', t.funding_micro)) AS e (account, amount_micro)
WHERE e.amount_micro <> 0;
REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON ledger_entries FROM billing_wallet_app;

-- Credit that is reserved for one call request. The price is fixed when the hold is made: the role
-- billing_wallet_app can change only the columns of the GRANT below.
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
    -- When the event `requested` of the call request was applied.
    confirmed_at      timestamptz,
    -- When billing-wallet last published the event `unconfirmed` for the hold.
    confirm_requested_at  timestamptz,
    settled_at        timestamptz,
    CHECK ((state = 'captured') = (captured_micro IS NOT NULL)),
    CHECK ((state = 'held') = (settled_at IS NULL))
);
-- Reconciliation reads all holds of one workspace.
CREATE INDEX holds_of_workspace ON holds (workspace_id, state);
CREATE INDEX holds_unconfirmed ON holds (created_at) WHERE state = 'held' AND confirmed_at IS NULL;
-- The search for long-open holds reads them in this order.
CREATE INDEX holds_by_confirm_time ON holds (coalesce(confirm_requested_at, created_at)) WHERE state = 'held';
REVOKE UPDATE, DELETE, TRUNCATE ON holds FROM billing_wallet_app;
GRANT UPDATE (state, captured_micro, call_id, confirmed_at, confirm_requested_at, settled_at) ON holds TO billing_wallet_app;

-- A settled hold never changes.
-- +goose StatementBegin
CREATE FUNCTION refuse_change_of_settled_hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'hold % is % and cannot change', OLD.request_id, OLD.state USING ERRCODE = 'restrict_violation';
END $$;
-- +goose StatementEnd
CREATE TRIGGER holds_settled_is_final BEFORE UPDATE ON holds
    FOR EACH ROW WHEN (OLD.state <> 'held') EXECUTE FUNCTION refuse_change_of_settled_hold();

-- Ends of call requests whose holds are not settled yet. The consumer only inserts rows, so that a batch
-- of events of many workspaces locks no wallet. A request can have several rows: the first of them
-- settles the hold.
CREATE TABLE pending_settlements (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace_id     uuid NOT NULL,
    request_id       uuid NOT NULL,
    reason           text NOT NULL,
    billable_seconds integer NOT NULL CHECK (billable_seconds >= 0),
    call_id          uuid,
    traceparent      text NOT NULL DEFAULT '',
    created_at       timestamptz NOT NULL DEFAULT now()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000); -- a queue, almost always nearly empty
CREATE INDEX pending_settlements_by_workspace ON pending_settlements (workspace_id, id);

-- The index of the primary key includes the price, so that a lookup reads only the index.
CREATE TABLE rates (
    workspace_id      uuid NOT NULL,
    prefix            text NOT NULL CHECK (prefix ~ '^\+[1-9][0-9]{0,14}$'),
    per_minute_micro  bigint NOT NULL CHECK (per_minute_micro >= 0),
    increment_seconds integer NOT NULL CHECK (increment_seconds BETWEEN 1 AND 3600),
    PRIMARY KEY (workspace_id, prefix) INCLUDE (per_minute_micro, increment_seconds)
);

-- The last comparison of a workspace's balances with its transactions and holds.
CREATE TABLE reconciliations (
    workspace_id uuid PRIMARY KEY,
    -- When the workspace was last compared. NULL: a replica claimed the workspace, but never compared it.
    checked_at   timestamptz,
    differences  bigint NOT NULL CHECK (differences >= 0),
    -- When a replica last claimed the workspace. A claim without a comparison leaves checked_at
    -- unchanged, so that the age of the last comparison grows.
    claimed_at   timestamptz
);
