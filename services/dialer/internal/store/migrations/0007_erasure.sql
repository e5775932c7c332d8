-- +goose Up

-- erased: the person was erased (contract.md, part 10). Variables are gone; what was said stays until the call ends, since the conversation is
-- carried on from it, and goes with the end.
ALTER TABLE calls ADD COLUMN erased boolean NOT NULL DEFAULT false;

-- An outbound call is found by its request; who calls us has none.
CREATE INDEX calls_of_caller ON calls (workspace_id, from_number) WHERE direction = 'inbound';

-- What a person said when opting out is kept in contacts-compliance as evidence; here only until it is there.
UPDATE opt_outs SET evidence = '' WHERE acknowledged_at IS NOT NULL;
