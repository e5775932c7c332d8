-- +goose Up

-- A settled hold is history: whatever a build does, it stays as it is.
-- +goose StatementBegin
CREATE FUNCTION refuse_change_of_settled_hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'hold % is % and stays so', OLD.request_id, OLD.state USING ERRCODE = 'restrict_violation';
END $$;
-- +goose StatementEnd
CREATE TRIGGER holds_settled_is_final BEFORE UPDATE ON holds
    FOR EACH ROW WHEN (OLD.state <> 'held') EXECUTE FUNCTION refuse_change_of_settled_hold();

-- The running role opens wallets and moves their balances; it closes none and gives none to another workspace.
REVOKE UPDATE, DELETE, TRUNCATE ON wallets FROM billing_wallet_app;
GRANT UPDATE (currency, wallet_micro, held_micro, revenue_micro, funding_micro, last_transaction_at) ON wallets TO billing_wallet_app;

-- A price is read from the key alone, however many prefixes a workspace has.
CREATE UNIQUE INDEX rates_prices ON rates (workspace_id, prefix) INCLUDE (per_minute_micro, increment_seconds);
ALTER TABLE rates DROP CONSTRAINT rates_pkey, ADD CONSTRAINT rates_pkey PRIMARY KEY USING INDEX rates_prices;

-- When the books of a workspace were last looked at by a serving replica, and how many differences it found. The row is the claim.
CREATE TABLE reconciliations (
    workspace_id uuid PRIMARY KEY,
    checked_at   timestamptz NOT NULL,
    differences  bigint NOT NULL CHECK (differences >= 0)
);
