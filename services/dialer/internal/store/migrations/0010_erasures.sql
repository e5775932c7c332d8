-- +goose Up

-- Erasures that were ordered: one that is ordered again concerns nobody who has called since. Rows are as few as people who are erased.
CREATE TABLE erasures (
    erasure_id uuid PRIMARY KEY,
    ordered_at timestamptz NOT NULL DEFAULT now()
);
