-- +goose NO TRANSACTION
-- +goose Up

-- Beside the running service: each statement locks one table and by itself, so that nobody waits in a circle; all may run again after a fault.

-- A settled hold is history: whatever a build does, it stays as it is.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION refuse_change_of_settled_hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'hold % is % and stays so', OLD.request_id, OLD.state USING ERRCODE = 'restrict_violation';
END $$;
-- +goose StatementEnd
CREATE OR REPLACE TRIGGER holds_settled_is_final BEFORE UPDATE ON holds
    FOR EACH ROW WHEN (OLD.state <> 'held') EXECUTE FUNCTION refuse_change_of_settled_hold();

-- The running role opens wallets and moves their balances; it closes none and gives none to another workspace.
-- +goose StatementBegin
DO $$
BEGIN
    REVOKE UPDATE, DELETE, TRUNCATE ON wallets FROM billing_wallet_app;
    GRANT UPDATE (currency, wallet_micro, held_micro, revenue_micro, funding_micro, last_transaction_at) ON wallets TO billing_wallet_app;
END $$;
-- +goose StatementEnd

-- A price is read from the key alone, however many prefixes a workspace has.
DROP INDEX CONCURRENTLY IF EXISTS rates_prices;
CREATE UNIQUE INDEX CONCURRENTLY rates_prices ON rates (workspace_id, prefix) INCLUDE (per_minute_micro, increment_seconds);
ALTER TABLE rates DROP CONSTRAINT IF EXISTS rates_pkey, ADD CONSTRAINT rates_pkey PRIMARY KEY USING INDEX rates_prices;

-- When the books of a workspace were last looked at by a serving replica, and how many differences it found. The row is the claim.
CREATE TABLE IF NOT EXISTS reconciliations (
    workspace_id uuid PRIMARY KEY,
    checked_at   timestamptz NOT NULL,
    differences  bigint NOT NULL CHECK (differences >= 0)
);
