-- +goose Up

-- low_balance_threshold_micro is the balance below which the event wallet.low_balance is published.
-- Null: it is never published. low_balance is true from the event until the balance reaches the
-- threshold again. low_balance_events is the number of events.
ALTER TABLE wallets ADD COLUMN low_balance_threshold_micro bigint CHECK (low_balance_threshold_micro > 0),
    ADD COLUMN low_balance boolean NOT NULL DEFAULT false,
    ADD COLUMN low_balance_events integer NOT NULL DEFAULT 0,
    ADD CONSTRAINT wallets_low_balance CHECK (NOT low_balance OR low_balance_threshold_micro IS NOT NULL);
GRANT UPDATE (low_balance_threshold_micro, low_balance, low_balance_events) ON wallets TO billing_wallet_app;
